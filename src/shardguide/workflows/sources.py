"""From the claims that decisions cite to sources that were opened again."""

from __future__ import annotations

from collections.abc import Iterable

from shardguide.guidance.hints import Any, NamedTuple
from shardguide.guidance.record import Check, Claim, Decision, Release, Source
from shardguide.installed.verify import claims
from shardguide.knowledge import claims_store, releases


def knowledge_version() -> str:
    """What identifies the knowledge that answered: the digest of the shipped claims."""
    return claims_store.digest()


class Cited(NamedTuple):
    """Decisions with the ids of their sources, and all sources once."""

    decisions: tuple[Decision, ...]
    sources: tuple[Source, ...]
    checks: tuple[Check, ...]
    not_confirmed: tuple[str, ...]
    found: int  # claims opened again in the PyTorch at hand
    total: int
    knowledge: str  # version of the knowledge


def cite(decisions: list[Decision], release: Release) -> Cited:
    """Look every cited claim up for the release; what does not stand there is said, not shown as if it did."""
    if not release.version:
        # Which statements hold depends on the release, so none is shown as confirmed or not.
        bare = tuple(decision._replace(sources=()) for decision in decisions)
        return Cited(bare, (), (confirmed((), release),) if decisions else (), (), 0, 0, knowledge_version())
    wanted = [
        claim for claim in dict.fromkeys(c for decision in decisions for c in decision.sources) if about(claim, release)
    ]
    looked_up = claims(wanted, release)
    sources: dict[str, Source] = {}
    for claim in looked_up.values():
        for source in claim.sources:
            sources.setdefault(source.id, source)
    out = tuple(
        decision._replace(
            sources=tuple(
                source.id for claim in decision.sources if claim in looked_up for source in looked_up[claim].sources
            )
        )
        for decision in decisions
    )
    missing = [claim for claim in looked_up.values() if claim.status == "not confirmed"]
    checks = (confirmed(looked_up.values(), release, "claims"),) if wanted else ()
    return Cited(
        out,
        tuple(sources.values()),
        checks,
        tuple(f"not confirmed for this release: {claim.text}" for claim in missing),
        sum(claim.status in ("found", "index") for claim in looked_up.values()),
        len(wanted),
        knowledge_version(),
    )


def statements(looked_up: Iterable[Claim], release: Release) -> list[dict[str, Any]]:
    """Claims as an answer shows them."""
    return [
        {
            "id": claim.id,
            "text": claim.text,
            "status": claim.status if release.version else "release unknown",
            "sources": [source.id for source in claim.sources],
        }
        for claim in looked_up
    ]


def confirmed(looked_up: Iterable[Claim], release: Release, kind: str = "statements") -> Check:
    """Check ``sources``: whether everything that is shown stands in this release. Without a release nothing is known."""
    if not release.version:
        return Check("sources", "unknown", "Statements are looked up once the release is known.")
    by_status = [claim.status for claim in looked_up]
    good, missing = by_status.count("found") + by_status.count("index"), by_status.count("not confirmed")
    where = f"PyTorch {release.version} at {release.path}" if release.path else "the shipped index"
    words = f"{good} {kind} found in {where}, {by_status.count('page')} on documentation pages"
    words += f", {missing} not confirmed for this release." if missing else "."
    return Check("sources", "unknown" if missing else "passed", words)


def about(claim: str, release: Release) -> bool:
    """Whether the claim speaks of this release; decisions cite the FSDP1 and the FSDP2 form of a fact side by side."""
    statement = claims_store.get(claim)
    if not statement.releases:
        return True
    return releases.within(release.version, statement.releases) and (
        not statement.limits or releases.within(release.version, statement.limits)
    )


def of_claims(ids: Iterable[str], release: Release) -> tuple[dict[str, list[str]], tuple[Source, ...]]:
    """The ids of each claim's sources, and the sources, looked up for the release; none where that is not known."""
    if not release.version:
        return {}, ()
    by_claim: dict[str, list[str]] = {}
    found: dict[str, Source] = {}
    for name, claim in claims([one for one in dict.fromkeys(ids) if about(one, release)], release).items():
        if claim.status != "not confirmed":
            by_claim[name] = [source.id for source in claim.sources]
            found.update((source.id, source) for source in claim.sources)
    return by_claim, tuple(found.values())
