"""The rules themselves: all of them by area, and one with its examples and what it rests on."""

from __future__ import annotations

from shardguide.guidance.errors import UnusableInput
from shardguide.guidance.hints import Any
from shardguide.knowledge import claims_store, rule_store

AREAS = {
    "0": "Launch files and configuration",
    "1": "Process groups",
    "2": "Collectives",
    "3": "FSDP1",
    "4": "FSDP2",
    "5": "DDP",
    "6": "Join",
    "7": "Checkpoints",
    "8": "Data loading",
    "9": "The API of the release",
}


def listing() -> dict[str, Any]:
    """Every rule, by area."""
    areas: list[dict[str, Any]] = []
    for digit, title in AREAS.items():
        rules = [rule_store.get(code) for code in rule_store.codes() if code[3] == digit]
        rows = [
            {"code": one.code, "title": one.title, "certain": one.certain, "releases": one.releases} for one in rules
        ]
        if rows:
            areas.append({"title": title, "rules": rows})
    return {"areas": areas}


def is_code(text: str) -> bool:
    """Whether ``text`` is meant as the code of a rule."""
    return len(text) == 6 and text[:3].upper() == "FSD" and text[3:].isdigit()


def one(code: str) -> dict[str, Any]:
    """A rule with everything that is known of it. Raises UnusableInput for a code that does not exist."""
    code = code.upper()
    if code not in rule_store.codes():
        near = [other for other in rule_store.codes() if other[:4] == code[:4]]
        raise UnusableInput(f"there is no rule {code}; of its area there are {', '.join(near) or 'none'}.")
    rule = rule_store.get(code)
    claims = []
    for name in rule.claims:
        statement = claims_store.get(name)
        sources = [{"title": source.title, "url": source.url} for source in statement.sources]
        claims.append({"id": name, "text": statement.text, "releases": statement.releases, "sources": sources})
    return {
        "rule": rule.code,
        "area": AREAS[rule.code[3]],
        "title": rule.title,
        "message": rule.message,
        "why": rule.why,
        "fix": rule.fix,
        "certain": rule.certain,
        "releases": rule.releases,
        "file": rule.file,
        "beside": rule.beside,
        "wrong": rule.wrong.strip("\n"),
        "right": rule.right.strip("\n"),
        "claims": claims,
        "see": list(rule.see),
    }
