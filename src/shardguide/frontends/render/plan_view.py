"""A plan for people: the answer first, one screen; everything with ``verbose``."""

from __future__ import annotations

from collections.abc import Collection

from shardguide.guidance.hints import Any

from .blocks import Block, Code, Heading, Items, Pairs, Table, Text, Title
from .numbers import ranks, size

LABELS = {
    "sharding": "Sharding",
    "mesh": "Mesh",
    "reshard_after_forward": "Reshard after forward",
    "wrapping": "Wrapping",
    "mixed_precision": "Mixed precision",
    "cpu_offload": "CPU offload",
    "activation_checkpointing": "Activation checkpointing",
    "backend": "Backend",
    "launch": "Launch",
}
RUNS_SHOWN = 4
IN_TITLE = ("gpu", "gpus", "nodes")


def _title(record: dict[str, Any]) -> str:
    shown = record.get("hardware")
    torch = record["torch"]["version"]
    release = f"PyTorch {torch}" if torch else "PyTorch release not known"
    if not shown:
        return f"Plan, incomplete · {release}"
    nodes = f" on {shown['nodes']} nodes" if shown["nodes"] and shown["nodes"] > 1 else ""
    gpu = shown["gpu"] or (f"{shown['memory']}" if shown["memory"] else "GPU not known")
    count = f"{shown['gpus']:,}" if shown["gpus"] else "?"
    return f"{shown['model']}, {shown['parameters']:,} parameters, on {count} × {gpu}{nodes} · {release}"


def known(record: dict[str, Any]) -> Text:
    """What is taken as given, and from where, to be confirmed (W1.1)."""
    parts = []
    for name, answer in record["answers"].items():
        if name == "model" or (name in IN_TITLE and answer["from"] == "user"):
            continue
        if name == "torch" and answer["from"] != "notebook":  # a release that was only remembered must not go unnoticed
            continue
        origin = "" if answer["from"] == "user" else f" [{answer['from'].rpartition('/')[2].removeprefix('file:')}]"
        parts.append(f"{name.replace('_', ' ')} {answer['value']}{origin}")
    nothing = "Given: no options."
    if any(name in record["answers"] for name in IN_TITLE):
        nothing = "Given: what the title says."
    elif record["workflow"] in ("plan", "tune"):
        nothing = "Nothing is known about the hardware yet."
    return Text("Given: " + ", ".join(parts) + "." if parts else nothing)


def _first(text: str) -> str:
    """The first sentence; the rest is in the full detail."""
    head, stop, _ = text.partition(". ")
    return head + "." if stop else text


def reasons(decision: dict[str, Any], labels: dict[str, str], verbose: bool) -> list[Block]:
    """Why a choice was taken and why not each other one."""
    others = [f"not {a['choice']}: {a['why_not'] if verbose else _first(a['why_not'])}" for a in decision["instead_of"]]
    items = [*decision["because"], *others]
    if verbose:
        items.append(f"sources: {', '.join(decision['sources'])}")
    return [Heading(f"Why: {labels.get(decision['id'], decision['id'])}"), Items(tuple(items))]


def _decisions(record: dict[str, Any], verbose: bool) -> list[Block]:
    marks = {True: "open", False: ""}
    rows = tuple((LABELS.get(d["id"], d["id"]), d["choice"], marks[d["open"]]) for d in record["decisions"])
    out: list[Block] = [Heading("Decisions"), Pairs(rows)]
    for decision in record["decisions"] if verbose else record["decisions"][:1]:
        out.extend(reasons(decision, LABELS, verbose))
    return out


def decided(record: dict[str, Any], labels: dict[str, str], verbose: bool, first: Collection[str]) -> list[Block]:
    """All choices, and the reasons of the ``first`` of them, or of all with ``verbose``."""
    if not record["decisions"]:
        return []
    marks = {True: "open", False: ""}
    rows = tuple((labels[one["id"]], one["choice"], marks[one["open"]]) for one in record["decisions"])
    out: list[Block] = [Heading("Decisions"), Pairs(rows)]
    for one in record["decisions"]:
        if verbose or one["id"] in first:
            out.extend(reasons(one, labels, verbose))
    return out


BUILT = {"transformers5": "as transformers 5 builds the model", "transformers4": "as transformers 4 builds the model",
         "checkpoint": "with the tensors of the checkpoint", "manifest": "with the tensors of the manifest"}  # fmt: skip


def _rank_table(runs: list[dict[str, Any]], verbose: bool) -> list[Block]:
    """Runs of equal ranks with what each holds."""
    columns = ("rank", "owns", "stores", "parameters", "gradients", "optimizer", "buffers")
    shown = runs if verbose or len(runs) <= RUNS_SHOWN else [*runs[: RUNS_SHOWN - 1], runs[-1]]
    rows = tuple(
        (
            ranks(run["first_rank"], run["last_rank"]),
            f"{run['parameters']:,}",
            f"{run['stored_parameters']:,}",
            size(run["parameter_bytes"]),
            size(run["gradient_bytes"]),
            size(run["optimizer_bytes"]),
            size(run["buffer_bytes"]),
        )
        for run in shown
    )
    more = (Text(f"{len(runs) - len(shown)} more runs of ranks: --verbose"),) if len(shown) < len(runs) else ()
    return [Table(columns, rows), *more]


def _accounting(record: dict[str, Any], verbose: bool) -> list[Block]:
    accounting = record.get("accounting") or {}
    runs = accounting.get("per_rank") or []
    if not runs:
        bounds = accounting.get("lower_bounds") or []
        rows = tuple(
            f"{b['id'].rpartition('.')[2].replace('_', ' ')}: {b['value']:,} {b['unit']} ({b['formula']})"
            for b in bounds
        )
        return [Heading("What the size alone says (lower bounds)"), Items(rows)] if bounds else []
    built = BUILT.get(accounting["implementation"], accounting["implementation"])
    out: list[Block] = [Heading(f"Exact bytes per rank ({built})"), *_rank_table(runs, verbose)]
    if accounting.get("per_rank_fsdp1"):
        out += [Heading("The same under FSDP1's flat parameters"), *_rank_table(accounting["per_rank_fsdp1"], verbose)]
    groups = accounting.get("groups") or []
    if groups:
        largest = max(groups, key=lambda group: group["all_gather_bytes"] or 0)
        out.append(
            Text(
                f"{len(groups)} communication groups; the largest, {largest['name']}, all-gathers {size(largest['all_gather_bytes'])} "
                f"and reduce-scatters {size(largest['reduce_scatter_bytes'])} (tensor sizes per rank)."
            )
        )
    if verbose and accounting.get("transients"):
        rows = tuple(
            f"{f['id'].removeprefix('transient.')}: {f['value']:,} {f['unit']} = {f['formula']}"
            for f in accounting["transients"]
        )
        out += [Heading("What training holds for a while (exact, per rank)"), Items(rows)]
    return out


def measured(record: dict[str, Any], verbose: bool) -> list[Block]:
    """What was measured, exactly as it was given."""
    facts = record["facts"]
    shown = facts if verbose else facts[:6]
    if not facts:
        return []
    rows = tuple(
        f"{one['id'].removeprefix('measured.')}: {one['value']} {one['unit']} ({one['formula']})" for one in shown
    )
    more = (Text(f"{len(facts) - len(shown)} more: --verbose"),) if len(shown) < len(facts) else ()
    return [Heading("Measured, as given"), Items(rows), *more]


def checks(record: dict[str, Any], verbose: bool = True) -> list[Block]:
    """Each check with its result and what it found."""
    if not record["checks"]:
        return []
    # What passed needs no words on the first screen, but for the memory, which never says more than "not ruled out".
    quiet = [c["id"] for c in record["checks"] if not verbose and c["result"] == "passed" and c["id"] != "memory"]
    rows = [(c["id"], c["evidence"], c["result"]) for c in record["checks"] if c["id"] not in quiet]
    if quiet:
        rows.append(("and", f"passed: {', '.join(quiet)} (see --verbose)", "passed"))
    return [Heading("Checks"), Pairs(tuple(rows))]


def questions(record: dict[str, Any]) -> list[Block]:
    """What is neither known nor given, as the options that answer it."""
    if not record["questions"]:
        return []
    rows = tuple(
        (
            "MODEL" if q["id"] == "model" else q["id"].replace("_", "-"),
            f"{q['ask']} {q['why']}" + (f" ({', '.join(q['choices'])})" if q["choices"] else ""),
            "unknown",
        )
        for q in record["questions"]
    )
    return [Heading("Still to answer (as --option VALUE)"), Pairs(rows)]


def snippets(record: dict[str, Any], verbose: bool) -> list[Block]:
    """Code and launch files: their texts with ``verbose``, else their names."""
    snippets = record["snippets"]
    if not snippets:
        return []
    if verbose:
        out: list[Block] = []
        for snippet in snippets:
            out.extend(
                [
                    Heading(f"{snippet['title']} ({snippet['id']}; {_verified(snippet['verified'])})"),
                    Code(snippet["language"], snippet["code"]),
                ]
            )
        return out
    rows = tuple((snippet["id"], f"{snippet['title']} ({_verified(snippet['verified'])})", "") for snippet in snippets)
    hints = tuple(step["why"] for step in record["next"] if "weights" in step["arguments"])
    listed: list[Block] = [Heading("Code and launch files (--show ID prints one, --write DIR writes all)"), Pairs(rows)]
    return [
        *listed,
        *(Text(f"--weights pretrained or dcp gives {hint}; this one draws random weights.") for hint in hints),
    ]


def _verified(verified: dict[str, Any]) -> str:
    parts = [word for word, true in (("parses", verified["parses"]), ("API checked", verified["api"])) if true]
    parts.append(f"run: {verified['executed']}" if verified["executed"] else "not run")
    return ", ".join(parts)


def sources(record: dict[str, Any]) -> list[Block]:
    """Every source, with the place where it was opened again."""
    items = []
    for source in record["sources"]:
        where = source["reopened"]
        at = f" — {where['where']}:{where['line']}" if where else ""
        items.append(f"{source['id']}: {source['title']} ({source['version']}) {source['url']}{at}")
    return [Heading("Sources"), Items(tuple(items))] if items else []


def end(record: dict[str, Any]) -> list[Block]:
    """Notes, what was not done, and the confirmation."""
    out: list[Block] = []
    if record["notes"]:
        out.extend([Heading("Note"), Items(tuple(record["notes"]))])
    if record["not_done"]:
        out.extend([Heading("Not done"), Items(tuple(record["not_done"]))])
    state = record["approval"]["state"]
    if state != "draft":
        out.extend([Text(""), Text(f"{state.capitalize()}: {record['id']}.")])
    elif record["decisions"] or record["approval"]["asked"]:
        out.extend([Text(""), Text(_draft(record))])
    return out


def _draft(record: dict[str, Any]) -> str:
    """What is asked of the user; nothing is put to approval while a question is open or a check failed."""
    asked = record["approval"]["asked"]
    if asked:
        return f"Draft. {asked} Confirm with: shardguide approve {record['id']}"
    if record["status"] == "needs_answers":
        return f"Draft {record['id']}: not for approval before the questions are answered."
    return f"Draft {record['id']}: not for approval, for a check failed (approve --anyway overrides it)."


def view(record: dict[str, Any], verbose: bool) -> list[Block]:
    """The page for a plan's record."""
    out: list[Block] = [Title(_title(record)), known(record)]
    failed = [check for check in record["checks"] if check["result"] == "failed"]
    if failed:
        out.append(Pairs(tuple((c["id"], c["evidence"], c["result"]) for c in failed)))
    out.extend(questions(record))
    if record["decisions"]:
        out.extend(_decisions(record, verbose))
    out.extend(_accounting(record, verbose))
    out.extend(measured(record, verbose))
    out.extend(checks(record, verbose))
    out.extend(snippets(record, verbose))
    if verbose:
        out.extend(sources(record))
    out.extend(end(record))
    return out
