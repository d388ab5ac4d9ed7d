"""Collectives aligned over ranks: in each process group, who issued what at the same sequence number, and who did not.

A collective hangs when its ranks disagree: one never issues it, issues another, with another size or type, or waits in another
group first. Dumps are taken in one by one, so that memory grows with the number of groups and entries and not with the
number of ranks times entries.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from shardguide.guidance.hints import NamedTuple
from shardguide.readers.flight_recorder.dump import Dump, Last, Op


class Finding(NamedTuple):
    """One disagreement in a group."""

    kind: str  # id of the diagnosis: "fr_rank_missing", "fr_only_some_ranks", "fr_op_mismatch", …
    group: str
    description: str
    seq: int
    ranks: tuple[int, ...]  # the culprits
    others: int  # how many ranks did otherwise
    text: str  # what was seen, as one line
    file: str  # of the dump that shows it
    frames: tuple[tuple[str, int, str], ...]
    created: int  # when the waiting ranks issued it, nanoseconds; -1 where it is not known


class _Group:
    """What is known of one group over the ranks seen so far."""

    def __init__(self) -> None:
        self.description = ""
        self.members: tuple[int, ...] = ()
        self.seen: dict[int, tuple[int, int]] = {}  # rank -> (first, last) sequence number in its dump
        self.kinds: dict[int, int] = {}  # sequence number -> kind of the first rank that had it
        self.odd: dict[int, dict[int, int]] = {}  # sequence number -> {rank: kind}, where a rank differs from the first
        self.latest: dict[int, Last] = {}
        self.open: dict[int, Last] = {}
        self.completed: dict[int, int] = {}


class Alignment:
    """Takes dumps in one after the other, and says what does not fit together."""

    def __init__(self) -> None:
        self.groups: dict[str, _Group] = {}
        self.kinds: dict[Op, int] = {}
        self.ops: list[Op] = []
        self.files: dict[int, str] = {}
        self.open: dict[int, tuple[Last, ...]] = {}

    def take(self, dump: Dump) -> None:
        """One rank's dump; a second dump of the same rank is left aside."""
        rank = dump.rank
        if rank is None or rank in self.files:
            return
        self.files[rank] = dump.file
        self.open[rank] = dump.open[:8]
        kinds = [self._kind(op) for op in dump.kinds]
        for name, (description, members) in dump.groups.items():
            if members or name in dump.ops or name in dump.status:
                group = self.groups.setdefault(name, _Group())
                group.description = group.description or description
                group.members = group.members or members
        for name, ops in dump.ops.items():
            group = self.groups.setdefault(name, _Group())
            numbers = [seq for seq in ops if seq >= 0]
            if not numbers:
                continue
            group.seen[rank] = (min(numbers), max(numbers))
            known = group.kinds
            for seq in numbers:
                kind = kinds[ops[seq]]
                if known.setdefault(seq, kind) != kind:
                    group.odd.setdefault(seq, {})[rank] = kind
            if name in dump.latest:
                group.latest[rank] = dump.latest[name]
        for last in dump.open:
            if last.seq >= 0:
                self.groups[last.group].open.setdefault(rank, last)
        for name, status in dump.status.items():
            if name in self.groups:
                self.groups[name].completed[rank] = status.completed
                if status.enqueued >= 0 and rank not in self.groups[name].seen:
                    # Its entries were overwritten, or it never had any: how far it came is known all the same.
                    self.groups[name].seen[rank] = (status.enqueued + 1, status.enqueued)

    def _kind(self, op: Op) -> int:
        index = self.kinds.get(op)
        if index is None:
            index = self.kinds[op] = len(self.ops)
            self.ops.append(op)
        return index

    def findings(self) -> list[Finding]:
        """What does not fit, the earliest first: by when the ranks that wait issued what they wait for."""
        # Ranks that wait for each other explain each other's absence: nobody is missing then.
        crossed = self._crossed()
        if crossed is not None:
            return [crossed]
        found: list[Finding] = []
        for name in sorted(self.groups):
            found += self._of(name, self.groups[name])
        if not found:
            found = self._pairs() or self._stuck()
        return sorted(found, key=lambda one: (one.created if one.created >= 0 else 1 << 63, one.group, one.seq))

    def _ranks(self, group: _Group) -> list[int]:
        """The group's ranks of which there is a dump."""
        members = group.members or tuple(group.seen)
        if not group.members and group.description == "default_pg":
            members = tuple(self.files)
        return sorted(rank for rank in members if rank in self.files)

    def _of(self, name: str, group: _Group) -> list[Finding]:
        ranks = self._ranks(group)
        if len(ranks) < 2:
            return []
        for seq in sorted(group.odd):
            mismatch = self._mismatch(name, group, seq, ranks)
            if mismatch is not None:
                return [mismatch]  # what comes after the first disagreement is its consequence
        behind = self._behind(name, group, ranks)
        return [behind] if behind is not None else []

    def _mismatch(self, name: str, group: _Group, seq: int, ranks: list[int]) -> Finding | None:
        odd = group.odd[seq]
        kinds = {rank: odd.get(rank, group.kinds[seq]) for rank in ranks if self._has(group, rank, seq)}
        counts = Counter(kinds.values())
        (usual, _), *_ = counts.most_common()
        even = len(counts) > 1 and counts.most_common()[0][1] == counts.most_common()[1][1]
        if even:  # as many here as there: the one that ranks from the lowest on do is called the usual one, and said so
            usual = kinds[min(kinds)]
        culprits = tuple(sorted(rank for rank, kind in kinds.items() if kind != usual))
        other = self.ops[kinds[culprits[0]]]
        kind, words = _difference(self.ops[usual], other)
        if not kind:
            return None
        shown = (
            "ranks disagree half and half"
            if even
            else f"rank {_ranks(culprits)} differ{'s' if len(culprits) == 1 else ''}"
        )
        text = f"{_group(name, group)}, collective {seq}: {shown}: {words}"
        at = group.open.get(culprits[0]) or group.latest.get(culprits[0])
        frames = at.frames if at is not None and at.seq == seq else ()
        created = min((one.created for one in group.open.values() if one.created >= 0), default=-1)
        return Finding(
            kind,
            name,
            group.description,
            seq,
            culprits,
            len(kinds) - len(culprits),
            text,
            self.files[culprits[0]],
            frames,
            created,
        )

    def _has(self, group: _Group, rank: int, seq: int) -> bool:
        first, last = group.seen.get(rank, (0, -1))
        return first <= seq <= last

    def _behind(self, name: str, group: _Group, ranks: list[int]) -> Finding | None:
        """Ranks that have not issued what others wait for."""
        last = {rank: group.seen[rank][1] if rank in group.seen else 0 for rank in ranks}
        most = max(last.values())
        waiting = [rank for rank in ranks if rank in group.open]
        if not waiting and not any(rank not in group.seen for rank in ranks):
            # Nobody waits: they were dumped at different moments of a run that goes on.
            return None
        behind = tuple(rank for rank in ranks if last[rank] < most)
        if not behind:
            return None
        ahead = [rank for rank in ranks if rank not in behind]
        witness = next((rank for rank in ahead if rank in group.open), ahead[0])
        shown = group.open.get(witness) or group.latest.get(witness)
        seq = min(last[rank] for rank in behind) + 1
        if shown is None:
            return None
        created = min((group.open[rank].created for rank in ahead if rank in group.open), default=-1)
        few = len(ahead) * 2 <= len(behind) if len(ranks) > 2 else False
        op = self.ops[group.kinds[seq]].name if seq in group.kinds else shown.op.name
        if few:
            text = (
                f"{_group(name, group)}, collective {seq} ({op}): only rank {_ranks(tuple(ahead))} issued it, "
                f"{len(behind)} other ranks did not"
            )
            return Finding(
                "fr_only_some_ranks", name, group.description, seq, tuple(ahead), len(behind), text, self.files[witness],
                shown.frames, created,
            )  # fmt: skip
        text = f"{_group(name, group)}, collective {seq} ({op}): rank {_ranks(behind)} never issued it, {len(ahead)} ranks wait"
        culprit = group.latest.get(behind[0])
        return Finding(
            "fr_rank_missing", name, group.description, seq, behind, len(ahead), text, self.files[behind[0]],
            culprit.frames if culprit is not None else (), created,
        )  # fmt: skip

    def _stuck(self) -> list[Finding]:
        """All ranks issued the same and none finished."""
        waiting = self._waiting()
        for name in sorted({one.group for one in waiting.values()}):
            group = self.groups[name]
            ranks = self._ranks(group)
            here = [rank for rank in ranks if rank in waiting and waiting[rank].group == name]
            absent = tuple(sorted(set(group.members) - set(ranks)))
            if absent and here and len(here) == len(ranks):
                shown = waiting[here[0]]
                count = (
                    f"all {len(here)} ranks with a dump"
                    if len(here) > 1
                    else f"rank {here[0]}, the only one with a dump,"
                )
                text = (
                    f"{_group(name, group)}, collective {shown.seq} ({shown.op.name}): {count} issued it, none finished; "
                    f"there is no dump of rank {_ranks(absent)}"
                )
                return [
                    Finding("fr_dump_missing", name, group.description, shown.seq, absent, len(here), text,
                            self.files[here[0]], shown.frames, shown.created)
                ]  # fmt: skip
            if len(here) > 1 and len(here) == len(ranks):
                shown = waiting[here[0]]
                text = f"{_group(name, group)}, collective {shown.seq} ({shown.op.name}): all {len(here)} ranks issued it, none finished"
                return [
                    Finding(
                        "fr_all_entered",
                        name,
                        group.description,
                        shown.seq,
                        (),
                        len(here),
                        text,
                        self.files[here[0]],
                        shown.frames,
                        shown.created,
                    )
                ]
        return []

    def _pairs(self) -> list[Finding]:
        """A send or receive at whose end nobody answers."""
        from .point_to_point import unmatched

        def members(name: str) -> list[int]:
            group = self.groups.get(name)
            return sorted(group.members) if group is not None and group.members else sorted(self.files)

        found = unmatched(self.open, members, lambda rank: rank in self.files)
        if found is None:
            return []
        last = found.wait.last
        group = self.groups.get(last.group) or _Group()
        text = f"{_group(last.group, group)}: {found.text}"
        file = self.files[found.wait.rank]
        return [
            Finding(found.kind, last.group, group.description, 0, found.ranks, 1, text, file, last.frames, last.created)
        ]

    def _waiting(self) -> dict[int, Last]:
        """What each rank waits in first."""
        return {rank: of[0] for rank, of in self.open.items() if of and of[0].seq >= 0}

    def _crossed(self) -> Finding | None:
        """Two ranks that belong to two groups and wait in one each, for the other: the groups were used in different orders."""
        waiting = self._waiting()
        by_group: dict[str, list[int]] = {}
        for rank, last in waiting.items():
            by_group.setdefault(last.group, []).append(rank)
        members = {name: set(self._ranks(self.groups[name])) for name in by_group}
        asked = {name: max(waiting[rank].seq for rank in ranks) for name, ranks in by_group.items()}
        groups_of: dict[int, list[str]] = {}
        for name in sorted(members):
            for rank in members[name]:
                groups_of.setdefault(rank, []).append(name)
        pairs = {(waiting[rank].group, two) for rank in waiting for two in groups_of.get(rank, ())}
        for one, two in sorted(pair for pair in pairs if pair[0] < pair[1] or (pair[1], pair[0]) not in pairs):
            # Each has not issued what the other waits for; a rank that is merely late waits in no collective.
            here = [rank for rank in by_group[one] if rank in members[two] and self._last(two, rank) < asked[two]]
            there = [rank for rank in by_group[two] if rank in members[one] and self._last(one, rank) < asked[one]]
            if here and there:
                return self._crossing(one, two, sorted(here), sorted(there), len(members[one] & members[two]), waiting)
        return None

    def _last(self, name: str, rank: int) -> int:
        """The last sequence number that a rank issued in a group."""
        return self.groups[name].seen.get(rank, (0, 0))[1]

    def _crossing(
        self, one: str, two: str, here: list[int], there: list[int], both: int, waiting: dict[int, Last]
    ) -> Finding:
        a, b = waiting[here[0]], waiting[there[0]]
        text = (
            f"rank {_ranks(tuple(here))} wait{'s' if len(here) == 1 else ''} in {_group(one, self.groups[one])} ({a.op.name}) "
            f"while rank {_ranks(tuple(there))} wait{'s' if len(there) == 1 else ''} in "
            f"{_group(two, self.groups[two])} ({b.op.name}); all of them belong to both groups"
        )
        few = here if len(here) < len(there) else there
        shown = waiting[few[0]]
        return Finding("fr_group_order", one, self.groups[one].description, a.seq, tuple(few), both - len(few), text,
                       self.files[few[0]], shown.frames, min(a.created, b.created))  # fmt: skip


def align(dumps: Iterable[Dump]) -> Alignment:
    """All dumps of a job."""
    alignment = Alignment()
    for dump in dumps:
        alignment.take(dump)
    return alignment


def _difference(usual: Op, other: Op) -> tuple[str, str]:
    """Which diagnosis a difference is, and in words; ("", "") for one that a collective allows."""
    if usual.name != other.name:
        return "fr_op_mismatch", f"{other.name} instead of {usual.name}"
    if (usual.input_dtypes, usual.output_dtypes) != (other.input_dtypes, other.output_dtypes):
        return "fr_dtype_mismatch", f"{usual.name} of {other.input_dtypes} instead of {usual.input_dtypes}"
    # Ranks may give different sizes to these on purpose: they are made for it, or only the root has one side.
    inputs = usual.input_sizes != other.input_sizes and usual.name not in (
        "all_to_all",
        "all_to_all_v_single",
        "scatter",
    )
    outputs = usual.output_sizes != other.output_sizes and usual.name not in (
        "all_to_all",
        "all_to_all_v_single",
        "gather",
    )
    if usual.name in ("all_to_all_single",) or not (inputs or outputs):
        return "", ""
    side, a, b = (
        ("input", usual.input_sizes, other.input_sizes)
        if inputs
        else ("output", usual.output_sizes, other.output_sizes)
    )
    return "fr_size_mismatch", f"{usual.name} with {side} sizes {b} instead of {a}"


def _group(name: str, group: _Group) -> str:
    described = f" ({group.description})" if group.description and group.description != "undefined" else ""
    return f"group {name}{described}"


def _ranks(ranks: tuple[int, ...]) -> str:
    shown = ", ".join(str(rank) for rank in ranks[:8])
    return f"{shown} and {len(ranks) - 8} more" if len(ranks) > 8 else shown


def own_frame(frames: tuple[tuple[str, int, str], ...]) -> str:
    """The innermost frame outside installed packages and the interpreter: the line of the user's own code."""
    for file, line, function in frames:
        if (
            file
            and "site-packages" not in file
            and "dist-packages" not in file
            and "/torch/" not in file
            and "<" not in file
        ):
            return f"{file}:{line} in {function}"
    return ""
