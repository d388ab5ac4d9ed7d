"""Follow-up questions on an answer: why, why not, from the record's own reasons. Nothing is added to them."""

from __future__ import annotations

from shardguide.frontends.render.blocks import Block, Heading, Items, Pairs, Text
from shardguide.guidance.hints import Any

# What people call the choices of a plan; both sides are looked for.
_ALSO = {
    "hsdp": ("hybrid",), "hybrid": ("hybrid",), "hybrid_shard": ("hybrid",), "zero2": ("grad_op",), "zero-2": ("grad_op",),
    "shard_grad_op": ("grad_op",), "zero3": ("full",), "zero-3": ("full",), "full_shard": ("full",),
    "ddp": ("none", "distributeddataparallel"), "no_shard": ("none",), "fp16": ("float16",), "float16": ("float16",), "bf16": ("bfloat16",),
    "fp32": ("float32",), "tp": ("tensor",), "ac": ("checkpoint",), "offloading": ("offload",), "hooks": ("main_hook",),
    "drain": ("throw_on_early_termination=false", "not throw", "false"), "stop": ("throw_on_early_termination=true",),
    "fsdp2": ("fully_shard",), "tcp": ("tcp://",), "file": ("file://",), "env": ("env://",), "slurm": ("sbatch",), "k8s": ("kubernetes",),
}  # fmt: skip
_SMALL = frozenset(
    ["the", "a", "an", "it", "this", "that", "is", "are", "was", "use", "using", "of", "for", "with", "in", "on", "not", "you", "do",
     "does", "did", "and", "or", "to", "my", "we", "i", "one"]
)  # fmt: skip


def _words(text: str) -> list[str]:
    found = [word.strip(".,?!()\"'`") for word in text.lower().split()]
    return [word for word in found if word and word not in _SMALL]


def _speaks(text: str, words: list[str]) -> int:
    """How many of the words a text has, by itself or under its other name."""
    low = text.lower()
    return sum(word in low or any(other in low for other in _ALSO.get(word, ())) for word in words)


def why_not(record: dict[str, Any], asked: str) -> list[Block]:
    """Why an alternative was not taken; empty where the record names none like it."""
    words = _words(asked)
    best: tuple[int, Any, Any] | None = None
    for decision in record.get("decisions", ()):
        for other in decision["instead_of"]:
            score = 2 * _speaks(other["choice"].partition(":")[0], words) + _speaks(decision["id"], words)
            if score >= 2 and (best is None or score > best[0]):
                best = (score, decision, other)
    if best is None:
        return why(record, asked) if words and _chosen(record, words) else []
    _, decision, other = best
    return [
        Heading(f"Why not {other['choice']}"),
        Text(other["why_not"]),
        Text(f"Chosen instead: {decision['choice']}"),
        *_cited(record, decision),
    ]


def _chosen(record: dict[str, Any], words: list[str]) -> bool:
    return any(_speaks(decision["choice"], words) for decision in record.get("decisions", ()))


def why(record: dict[str, Any], asked: str) -> list[Block]:
    """The reasons of the decision that is meant; of the first one where none is named."""
    decisions = record.get("decisions") or []
    if not decisions:
        return [] if _words(asked) else _causes(record) or _findings(record) or _converted(record) or sources(record)
    words = _words(asked)
    scored = [(2 * _speaks(one["id"], words) + _speaks(one["choice"], words), one) for one in decisions]
    score, decision = max(scored, key=lambda pair: pair[0])
    if words and not score:
        return []
    return [
        Heading(f"{decision['id']}: {decision['choice']}"),
        Items(tuple(decision["because"])),
        *_cited(record, decision),
    ]


def _causes(record: dict[str, Any]) -> list[Block]:
    return [
        block
        for one in record.get("diagnoses", ())[:1]
        for block in (Heading(one["title"]), Text(one["cause"]), Text(f"How to tell: {one['tell']}"))
    ]


def _findings(record: dict[str, Any]) -> list[Block]:
    return [
        block
        for one in record.get("findings", ())[:5]
        for block in (Heading(f"{one['rule']}: {one['message']}"), Text(one["why"]))
    ]


def _converted(record: dict[str, Any]) -> list[Block]:
    """Of a migration: what a person has to decide, what was left, each with its reason."""
    rows = [f"{one['place']}: {one['what']} {one['why']}" for one in record.get("todo", ())]
    left = [
        f"{one['path']}:{one['line']}: {one['what']}, left: {one['reason']}"
        for one in record.get("uses", ())
        if one["reason"]
    ]
    out: list[Block] = [Heading("To decide, and why"), Items(tuple(rows))] if rows else []
    out += [Heading("Left as it is"), Items(tuple(left))] if left else []
    return [*out, *sources(record)] if out else []


def _cited(record: dict[str, Any], decision: dict[str, Any]) -> list[Block]:
    titles = {source["id"]: source["title"] for source in record.get("sources", ())}
    named = [titles[one] for one in decision["sources"] if one in titles]
    return [Text(f"Sources: {'; '.join(dict.fromkeys(named))}")] if named else []


def sources(record: dict[str, Any]) -> list[Block]:
    """Every source, with the place where it was opened again."""
    rows = []
    for one in record.get("sources", ()):
        where = one["reopened"]
        place = f" ({where['where']}:{where['line']})" if where else ""
        rows.append(f"{one['title']}: {one['object'] or one['url']}{place}")
    for one in (*record.get("diagnoses", ()), *record.get("findings", ())):
        rows += [name for name in one.get("sources", ()) if name.startswith("https://")]
    return [Heading("Sources"), Items(tuple(dict.fromkeys(rows)))] if rows else [Text("This answer cites no source.")]


def changes(before: dict[str, Any], now: dict[str, Any]) -> list[Block]:
    """What another answer to the same task decides otherwise, and which of its checks say something else."""
    was = {one["id"]: one["choice"] for one in before.get("decisions", ())}
    rows: list[tuple[str, str, str]] = []
    reasons: list[Block] = []
    for one in now.get("decisions", ()):
        if was.get(one["id"]) != one["choice"]:
            then = f" (was: {was[one['id']]})" if one["id"] in was else ""
            rows.append((one["id"].replace("_", " "), f"{one['choice']}{then}", "open" if one["open"] else ""))
            reasons += [Heading(f"Why: {one['id'].replace('_', ' ')}"), Items(tuple(one["because"]))]
    gone = [(name, "not decided any more", "") for name in was if name not in {one["id"] for one in now["decisions"]}]
    said = {one["id"]: (one["result"], one["evidence"]) for one in before.get("checks", ())}
    checks = tuple(
        (one["id"], one["evidence"], one["result"])
        for one in now.get("checks", ())
        if said.get(one["id"]) != (one["result"], one["evidence"])
    )
    out: list[Block] = [Heading("What changes")]
    out.append(Pairs((*rows, *gone)) if rows or gone else Text("No decision changes."))
    out += reasons
    if checks:
        out += [Heading("Checks"), Pairs(checks)]
    return out
