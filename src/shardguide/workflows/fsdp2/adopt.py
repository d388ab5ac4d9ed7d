"""Decisions ``adopt``, ``import`` and ``differences``: FSDP2 or not for this release, where it is imported from, what it is."""

from __future__ import annotations

from shardguide.guidance.hints import NamedTuple
from shardguide.guidance.record import Alternative, Decision, Snippet, Source, Verified
from shardguide.knowledge import api, fsdp2_mapping
from shardguide.knowledge.fsdp2_mapping import Feature, Row

from .tables import first

PUBLIC = "torch.distributed.fsdp"
FSDP1 = "torch.distributed.fsdp.FullyShardedDataParallel"
# What the import line offers, as far as the release has it.
NAMES = ("fully_shard", "FSDPModule", "MixedPrecisionPolicy", "CPUOffloadPolicy", "register_fsdp_forward_method")


class Case(NamedTuple):
    """What is decided for."""

    release: str  # minor, "2.13"
    home: str  # module that exports fully_shard there, "" where there is none
    using: str  # "fsdp1", "fsdp2", "ddp", "none"; "" if not said
    goals: tuple[str, ...]

    @property
    def has(self) -> bool:
        """Whether the release has FSDP2."""
        return bool(self.home)

    @property
    def public(self) -> bool:
        """Whether it is exported from a public module."""
        return self.home == PUBLIC


def since() -> str:
    """The release from which fully_shard is public."""
    return first(fsdp2_mapping.since(f"{PUBLIC}.fully_shard"))


def in_index(case: Case) -> tuple[Source, ...]:
    """The API index as the source of what exists in which release."""
    out = []
    for name in (f"{PUBLIC}.fully_shard", "torch.distributed._composable.fsdp.fully_shard", FSDP1):
        page = "fsdp.html" if name == FSDP1 else "distributed.fsdp.fully_shard.html"
        out.append(
            Source(
                f"api:{name}", "API of every release, read from its own files", f"https://docs.pytorch.org/docs/stable/{page}", name,
                fsdp2_mapping.since(name),
            )
        )  # fmt: skip
    return (out[2], out[0]) if case.public else tuple(out)


def adopt(case: Case, lacking: list[Feature], without: list[Row]) -> Decision:
    """FSDP2 or not; ``lacking`` are features that the release's FSDP2 has not yet, ``without`` what of FSDP1 has no counterpart."""
    public = since()
    if not case.has:
        earliest = first(fsdp2_mapping.since("torch.distributed._composable.fsdp.fully_shard"))
        reasons = [
            f"PyTorch {case.release} has FSDP1 only: fully_shard in its present form came with {earliest}, in a private module, and is "
            f"public from {public} on.",
        ]
        if api.exists("torch.distributed._composable.fully_shard", case.release):
            reasons.append(
                f"torch.distributed._composable.fully_shard, which {case.release} does have, is another function: FSDP1's flat parameters "
                "without the wrapper. It is gone from 2.6 on."
            )
        others = (
            Alternative("torch.distributed._composable.fully_shard", "It is not FSDP2, and is gone from 2.6 on."),
        )
        cited = ("fsdp2.prototype", "fsdp1.full_shard", "fsdp1.flat_padding")
        return Decision(
            "adopt",
            f"not in PyTorch {case.release}: FSDP1 there, or upgrade to {public} or later",
            tuple(reasons),
            others,
            cited,
        )
    if not case.public:
        reasons = [
            f"PyTorch {case.release} has fully_shard in {case.home} only, a private module; it is public from {public} on.",
            *_later(lacking),
        ]
        possible = (
            Alternative(f"fully_shard of {case.release}", f"It can be used, from {case.home}; private names may change."),
            Alternative("FSDP1", "Its public API is there in this release and in the newest one; the FSDP2 tutorial calls it deprecated."),
        )  # fmt: skip
        return Decision(
            "adopt", f"after an upgrade to {public} or later; in {case.release} only from a private module",
            tuple(reasons), possible, ("fsdp2.what", "fsdp2.dtensor", "fsdp2.prototype", "practice.fsdp1_deprecated"), open=True,
        )  # fmt: skip
    return _public(case, lacking, without)


def _public(case: Case, lacking: list[Feature], without: list[Row]) -> Decision:
    """For a release that has FSDP2 in public."""
    cited = ["fsdp2.import_path", "fsdp2.what"]
    reasons = [f"PyTorch {case.release} exports it from {PUBLIC}, as every release since {since()} does."]
    others = [
        Alternative(
            "FSDP1", "The FSDP2 tutorial calls it deprecated; flat parameters stand in the way of much that FSDP2 does."
        ),
        Alternative("DistributedDataParallel", "Where the model fits one GPU and only more throughput is wanted."),
    ]
    cited += ["practice.fsdp1_deprecated", "practice.ddp_first"]
    open_ = False
    choice = "yes: fully_shard"
    if case.using == "ddp":
        choice, open_ = "where the model does not fit one GPU; DistributedDataParallel otherwise", True
        reasons.append(
            "FSDP adds all-gathers to each forward and backward: it is for jobs that memory holds back, not for a model that fits one GPU."
        )
        cited += ["practice.fsdp_when", "when.memory"]
        others = others[:1]
    elif case.using == "fsdp2":
        choice = f"it is in use: import it from {PUBLIC}"
        reasons.append("Older code imports it from torch.distributed._composable.fsdp, which only re-exports it now.")
    elif case.using == "fsdp1" or "migrate" in case.goals:
        choice = "yes: migrate to fully_shard"
        if without:
            lost = "; ".join(one.fsdp1.partition(" (")[0] for one in without)
            reasons.append(f"Nothing takes the place of these; check whether your code has them: {lost}.")
        reasons.append(
            "Train both for some steps from the same weights and data, and compare losses and gradient norms."
        )
    reasons += _later(lacking)
    return Decision("adopt", choice, tuple(reasons), tuple(others), tuple(cited), open=open_)


def _later(lacking: list[Feature]) -> list[str]:
    """What later releases have more."""
    if not lacking:
        return []
    count = "One feature" if len(lacking) == 1 else f"{len(lacking)} features"
    return [f"{count} of the comparison came later than this release; what your goals need of them is said there."]


def names(case: Case) -> list[str]:
    """What the import line names, in this release."""
    found = [name for name in NAMES if api.exists(f"{case.home}.{name}", case.release)]
    if "FSDPModule" not in found and api.exists(f"{case.home}.FSDP", case.release):
        found.insert(1, "FSDP")
    return found


def line(case: Case) -> str:
    """The import line that is right for the release."""
    return (
        f"from {case.home} import {', '.join(names(case))}"
        if case.has
        else f"from {PUBLIC} import FullyShardedDataParallel"
    )


def imported(case: Case) -> Decision:
    """Where it is imported from."""
    if not case.has:
        reasons = (f"PyTorch {case.release} has no fully_shard of FSDP2, in no module.",)
        return Decision("import", line(case), reasons, (), ("fsdp1.optimizer_after",))
    old = "torch.distributed._composable.fsdp"
    if case.public:
        why = f"The path of 2.3 to 2.5, and of most older guides; {case.release} only re-exports the names there."
        cited = ("fsdp2.import_path",)
        reasons = (f"{PUBLIC} has these names in PyTorch {case.release}.",)
        return Decision("import", line(case), reasons, (Alternative(f"from {old} import …", why),), cited)
    reasons = (f"In PyTorch {case.release} {PUBLIC} has FSDP1 only; FSDP2 is in {old}.",)
    why = f"It raises ImportError before {since()}."
    return Decision(
        "import", line(case), reasons, (Alternative(f"from {PUBLIC} import fully_shard", why),), ("fsdp2.what",)
    )


def import_snippet(case: Case) -> Snippet:
    """The import for this release, with the version that it is for said."""
    code = "\n".join([f"# For PyTorch {case.release}.", _wrapped(case), ""])
    executed = "2.13.0, 1 process, CPU" if case.public else ""
    return Snippet("import", "The import", "python", code, Verified(True, True, executed))


def _wrapped(case: Case) -> str:
    """The import line, in brackets where it is long."""
    text = line(case)
    if len(text) <= 100:
        return text
    head, _, tail = text.partition(" import ")
    return "\n".join([f"{head} import (", *(f"    {name}," for name in tail.split(", ")), ")"])


def differences(case: Case, features: list[Feature]) -> Decision:
    """The design, and what follows from it; the table has it feature by feature."""
    reasons = (
        "FSDP1 joins the parameters of a module into one flat parameter, so that what holds for one of them must hold for all: "
        "frozen or not, which dtype, which name.",
        "FSDP2 shards each parameter by itself, as a DTensor: state dicts need no communication, frozen parameters mix, tensor "
        "parallelism and fully_shard use the same kind of tensor.",
        "FSDP1 is a wrapper with one large constructor; fully_shard is called module by module, and each call is one group that is "
        "gathered and reduced together.",
    )
    here = [one for one in features if api.holds(case.release, one.releases2 if case.has else one.releases1)]
    cited = tuple(dict.fromkeys(claim for one in here for claim in one.claims))
    return Decision("differences", "one DTensor for each parameter, in place of flat parameters", reasons, (), cited)
