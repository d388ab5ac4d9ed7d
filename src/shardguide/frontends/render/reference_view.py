"""Pages of ``docs api`` and ``docs changes``."""

from __future__ import annotations

from shardguide.guidance.hints import Any

from .blocks import Block, Code, Heading, Items, Pairs, Text, Title

_MANY = 12  # lines shown of a section unless everything is asked for
_ALL = 80  # changes of behaviour up to which each is shown
_DEPRECATIONS = ("deprecated", "warns", "undeprecated")
_WORDS = {
    "added": "new",
    "removed": "removed",
    "changed": "changed",
    "deprecated": "deprecated",
    "warns": "deprecated use",
    "undeprecated": "deprecation withdrawn",
    "annotations": "annotations",
}


def name_page(record: dict[str, Any], verbose: bool = False) -> list[Block]:
    """One name: signature first, then where it is, then its history."""
    release = record["release"]
    instead = f"; there it is {record['instead']}" if record.get("instead") else ""
    there = "" if record["in_release"] else f": not in PyTorch {release}{instead}"
    out: list[Block] = [Title(f"{record['name']} ({record['kind']}){there or f' in PyTorch {release}'}")]
    if record.get("signature"):
        out.append(Code("python", _broken(record["signature"])))
        out.append(Heading("Where and since when"))
    rows = [("in releases", record["releases"], "")]
    if record["torch"]["known_from"] == "unknown":  # nobody said, and no PyTorch is at hand
        rows.append(
            ("shown for", f"{release}, the newest known here; --torch shows it as another release has it", "open")
        )
    if record.get("deprecated"):
        rows.append(("deprecated", record["deprecated"], "failed"))
    rows += [("warns", words, "open") for words in record.get("warns", ())]
    rows += _launch_rows(record)
    if record.get("defined_as"):
        rows.append(("the object is", record["defined_as"], ""))
    also = {key: since for key, since in record.get("also", {}).items() if key != record.get("defined_as")}
    if also:
        shown = list(also.items()) if verbose else list(also.items())[:4]
        rows.append(("also under", "; ".join(f"{key} ({since})" for key, since in shown), ""))
    rows += [("base classes", ", ".join(record["bases"]), "")] if record.get("bases") else []
    place, torch = record["installed"], record["torch"]
    if not place:
        here = f"not found in {torch['path']}" if torch["path"] else "no PyTorch of this release at hand"
        rows += [("in your PyTorch", here, "")] if record["in_release"] or instead else []
    out.append(Pairs(tuple(rows)))
    if place:  # as code: to be pasted, so never wrapped or cut
        out.append(Heading(f"In your PyTorch {torch['version']}"))
        out.append(Code("text", f"{torch['path']}/{place['file']}:{place['line']}"))
    out += [Heading("From release to release"), Items(tuple(_history(record["history"], verbose)))]
    if record.get("members"):
        out += [Heading(f"Members ({len(record['members'])})"), Text(", ".join(record["members"]))]
    return out


def _broken(signature: str) -> str:
    """A long signature with one parameter on a line."""
    if len(signature) <= 90:
        return signature
    head, _, rest = signature.partition("(")
    inside, parts, depth, quote = "", [], 0, ""
    for at, char in enumerate(rest):
        if quote:
            quote = "" if char == quote else quote
        elif char in "'\"":
            quote = char
        elif char in "([{":
            depth += 1
        elif char in ")]}" and depth:
            depth -= 1
        elif char == ")":
            parts.append(inside)
            return "\n".join([head + "(", *(f"    {part.strip()}," for part in parts), rest[at:]])
        elif char == "," and not depth:
            parts.append(inside)
            inside = ""
            continue
        inside += char
    return signature


def _launch_rows(record: dict[str, Any]) -> list[tuple[str, str, str]]:
    option = record.get("option")
    rows: list[tuple[str, str, str]] = []
    if option:
        rows.append(("written", ", ".join(option["spellings"]), ""))
        rows += [(key, option[key], "") for key in ("default", "type", "choices") if option[key]]
        rows += (
            [("taken from", f"the environment variable {option['env']}, unless it is given", "")]
            if option["env"]
            else []
        )
        rows += [("value", "none: a flag", "")] if option["flag"] else []
    for item in record.get("read", ()):
        rows.append(("read in", item["file"] + (f", default {item['default']}" if item["default"] else ""), ""))
    for file in record.get("named", ()):
        rows.append(("named in", f"{file}; no Python file reads it, compiled code may", ""))
    return rows


def _history(history: list[dict[str, Any]], verbose: bool) -> list[str]:
    rows = []
    for item in history:
        if item["changes"]:
            extra = f"; {'; '.join(item['notes'])}" if verbose and item["notes"] else ""
            rows.append(f"{item['release']}: {'; '.join(item['changes'])}{extra}")
        elif verbose:
            rows.append(f"{item['release']}: annotations: {'; '.join(item['notes'])}")
    left = sum(not item["changes"] for item in history)
    if left and not verbose:
        rows.append(f"{left} more with changed annotations only (--verbose)")
    return rows


def changes_page(record: dict[str, Any], verbose: bool = False) -> list[Block]:
    """Two releases: behaviour first, then deprecations, then the API by areas."""
    before, after = record["from"], record["to"]
    main = [change for area in record["areas"] if area["main"] for change in area["changes"]]
    count = {kind: sum(change["kind"] == kind for change in main) for kind in ("moved", *_WORDS)}
    title = (
        f"PyTorch {before} → {after} for FSDP, DDP, DTensor and DCP: {len(record['behaviour'])} known changes of behaviour; "
        f"of the API {count['added'] + count['moved']} new, {count['removed']} removed, {count['changed']} changed, "
        f"{count['deprecated']} deprecated, {count['undeprecated']} no longer deprecated"
    )
    out: list[Block] = [Title(title)]
    out += _behaviour(record, verbose)
    about = [change for change in main if change["kind"] in _DEPRECATIONS]
    out += _section("Deprecations", _lines(about), True)
    hidden = 0
    for area in record["areas"]:
        shown = [change for change in area["changes"] if change["kind"] not in _DEPRECATIONS or not area["main"]]
        visible = [change for change in shown if verbose or change["kind"] != "annotations"]
        hidden += len(shown) - len(visible) if area["main"] else 0
        if area["main"] or verbose:
            out += _section(area["title"], _lines(visible), verbose)
    rows = [f"{row['name']}: {'; '.join(row['details'])}" for row in record["torchrun"]]
    out += _section("torchrun", rows, verbose)
    rows = [f"{row['name']}: {'; '.join(row['details'])}" for row in record["environment"]]
    out += _section("Environment variables read in Python", rows, verbose)
    if verbose:
        rows = [f"known for {row['releases']}: {row['text']}" for row in record["statements"]]
        out += _section("Statements known for one of the two only; the behaviour may be the same in both", rows, True)
        return out
    others = [f"{area['title']} ({len(area['changes'])})" for area in record["areas"] if not area["main"]]
    rest = [f"elsewhere: {', '.join(others)}"] if others else []
    rest += [f"{hidden} with changed annotations only"] if hidden else []
    rest += [f"{len(record['statements'])} statements known for one of the two only"] if record["statements"] else []
    if rest:
        out += [Heading("With --verbose"), Items(tuple(rest))]
    return out


def _lines(changes: list[dict[str, Any]]) -> list[str]:
    """One line a change; what came, went or moved together shares one."""
    rows: list[str] = []
    groups: dict[str, list[str]] = {}
    for change in changes:
        owner, _, last = change["name"].rpartition(".")
        if change["kind"] == "moved":
            former = change["details"][0].removeprefix("was ").rpartition(".")[0]
            groups.setdefault(f"now in {owner}, and still in {former}", []).append(last)
        elif change["kind"] in ("added", "removed"):
            groups.setdefault(f"{_WORDS[change['kind']]} in {owner}", []).append(last)
    rows += [f"{head}: {', '.join(names)}" for head, names in groups.items()]
    for change in changes:
        if change["kind"] not in ("added", "removed", "moved"):
            details = [item for item in change["details"] if item != "no longer deprecated"]
            rows.append(f"{_WORDS[change['kind']]}: {change['name']}{': ' if details else ''}{'; '.join(details)}")
    return rows


def _behaviour(record: dict[str, Any], verbose: bool) -> list[Block]:
    """What holds in one of the two releases only, by the release with which it came or went; back to an older one, what is undone."""
    back = _minor(record["from"]) > _minor(record["to"])
    by_release: dict[str, list[str]] = {}
    for row in record["behaviour"]:
        release, holds = _turn(row, record)
        word = ("no longer: " if holds else "again: ") if back else ("" if holds else "no longer: ")
        by_release.setdefault(release, []).append(word + row["text"])
    # Between neighbours everything is shown; over many releases it would be a book.
    whole = verbose or len(record["behaviour"]) <= _ALL
    out: list[Block] = []
    for release in sorted(by_release, key=_minor, reverse=back):
        title = f"Behaviour, back before {release}" if back else f"Behaviour, with {release}"
        out += _section(title, by_release[release], whole, _MANY // 2)
    return out


def _turn(row: dict[str, Any], record: dict[str, Any]) -> tuple[str, bool]:
    """The release with which a claim begins to hold, or with which it ceases to."""
    minor = _minor(row["holds_in"])
    later = minor == max(_minor(record[key]) for key in ("from", "to"))
    for part in row["releases"].split(", "):
        first, _, last = part.partition("-")
        if _minor(first) <= minor <= _minor(last or first):
            return (first, True) if later else (f"2.{_minor(last or first) + 1}", False)
    return row["holds_in"], later


def _minor(release: str) -> int:
    return int(release.partition(".")[2])


def _section(title: str, rows: list[str], whole: bool, most: int = _MANY) -> list[Block]:
    if not rows:
        return []
    shown = rows if whole or len(rows) <= most + 1 else [*rows[:most], f"{len(rows) - most} more (--verbose)"]
    return [Heading(title), Items(tuple(shown))]
