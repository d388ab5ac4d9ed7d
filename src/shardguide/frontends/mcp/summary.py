"""A few sentences that stand first in a result, taken from its own parts: hosts may show nothing else."""

from __future__ import annotations

from shardguide.guidance.hints import Any

_CHOICES = 4
_FINDINGS = 3
_LONGEST = 1_500  # characters


def summary(record: dict[str, Any]) -> str:
    """What the record says, what it still needs, and what speaks against it."""
    said = [_said(record), *(record.get("understood") or {}).get("notes", ())]
    open_ = [question["id"] for question in record.get("questions", ())]
    if open_:
        said.append(f"Still to be answered: {', '.join(open_)}.")
    bad = [check for check in record.get("checks", ()) if check["result"] == "failed"]
    if bad and record.get("workflow") != "review":
        said += [f"Check {check['id']} failed: {_sentence(check['evidence'])}" for check in bad]
    unread = record.get("problems") or []
    if unread:
        said.append(f"Not read: {', '.join(str(one.get('path', one)) for one in unread[:_FINDINGS])}{_more(unread)}.")
    whole = " ".join(one for one in said if one)
    return whole if len(whole) <= _LONGEST else f"{whole[: _LONGEST - 1]}…"


def _sentence(text: str) -> str:
    return text if text.endswith((".", "!", "?")) else f"{text}."


def _more(found: list[Any]) -> str:
    return f" and {len(found) - _FINDINGS} more" if len(found) > _FINDINGS else ""


def _said(record: dict[str, Any]) -> str:
    workflow = record.get("workflow", "")
    if workflow == "start":
        return "Nothing has been said yet."
    if workflow == "diagnose":
        return _diagnosed(record)
    if workflow == "review":
        return _reviewed(record["findings"], bool(record.get("problems")))
    if workflow == "migrate":
        return _migrated(record)
    if workflow == "docs":
        return _looked_up(record)
    if workflow == "explain" and "groups" in record:
        return "The topics that can be explained; call explain with the id of one as topic, or with words."
    if record.get("join_check"):
        return _hooks(record)
    if record.get("decisions"):
        return "; ".join(f"{one['id']}: {one['choice']}" for one in record["decisions"][:_CHOICES]) + "."
    if record.get("statements"):
        return " ".join(_sentence(one["text"]) for one in record["statements"][:2])
    if workflow == "explain":
        topic = record.get("topic") or {}
        answer = " ".join(_sentence(one["text"]) for one in topic.get("answer", ())[:2])
        return f"{topic['title']}: {answer}" if topic.get("title") else "A whole training script, in snippets."
    if workflow == "ask":
        return "Not known: the sources that Shardguide has do not say it."
    return "Too little is known for an answer."


def _diagnosed(record: dict[str, Any]) -> str:
    found = record["diagnoses"]
    if not found:
        if record["outcome"] == "no_failure":
            return "No failure was found in what was handed over."
        if record["outcome"] == "consequence":
            titles = "; ".join(one["title"] for one in record["consequences"][:2])
            return f"Only a consequence: {_sentence(titles)} The cause stands with another rank. {' '.join(record['notes'])}"
        kinds = ", ".join(dict.fromkeys(one["kind"][:80] for one in record["raised"][:4]))
        return f"No known failure was recognised{f'; what was raised is no known one: {kinds} (see raised)' if kinds else ''}."
    first = found[0]
    ranks = f", rank {', '.join(map(str, first['ranks'][:8]))}" if first["ranks"] else ""
    others = f" Also: {'; '.join(one['title'] for one in found[1:_FINDINGS])}." if found[1:] else ""
    return f"{first['title']} ({first['confidence']}{ranks}). Fix: {_sentence(first['fix'])}{others}"


def _reviewed(found: list[dict[str, Any]], unread: bool) -> str:
    if not found:
        return "Nothing was found in what could be read." if unread else "Nothing was found."
    ranked = sorted(found, key=lambda one: not one["certain"])
    certain = sum(one["certain"] for one in found)
    first = "; ".join(f"{one['rule']} {one['path']}:{one['line']}, {one['message']}" for one in ranked[:_FINDINGS])
    return (
        f"{_count(certain, 'certain finding')} and {_count(len(found) - certain, 'suspicion')}: {first}{_more(found)}."
    )


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _migrated(record: dict[str, Any]) -> str:
    counts = list((record.get("counts") or {}).values())
    done, left = (sum(one.get(name, 0) for one in counts) for name in ("converted", "left"))
    todo = record.get("todo", ())
    first = f", first {todo[0]['place']}: {_sentence(todo[0]['what'])}" if todo else "."
    diff = "The changes are in diff." if record.get("diff") else "There is nothing to change."
    return (
        f"{_count(done, 'use')} of FSDP1 converted, {left} left as they are. {diff} "
        f"{_count(len(todo), 'point')} {'needs' if len(todo) == 1 else 'need'} a person{first}"
    )


def _looked_up(record: dict[str, Any]) -> str:
    if "name" not in record:
        counted = ", ".join(
            f"{len(record[name])} {word}"
            for name, word in (("areas", "areas of the API"), ("behaviour", "changes of behaviour"))
            if isinstance(record.get(name), (list, dict))
        )
        return f"What changed from {record['from']} to {record['to']}: {counted}."
    known = record.get("releases")
    since = f", in {known if isinstance(known, str) else ', '.join(map(str, known))}" if known else ""
    signature = record.get("signature")
    called = f" {signature}" if isinstance(signature, str) and len(signature) < 600 else ""
    return f"{record['name']}: {record.get('kind') or 'not known'}{since}.{called}"


def _hooks(record: dict[str, Any]) -> str:
    rows = [f"{one['name']} ({one['kind']}): {one['verdict']}" for one in record["join_check"]]
    issues = [issue["message"] for one in record["join_check"] for issue in one.get("issues", ())]
    use = next((f" {one['id']}: {one['choice']}." for one in record.get("decisions", ())), "")
    return f"{'; '.join(rows)}.{f' {_sentence(issues[0])}' if issues else ''}{use}"
