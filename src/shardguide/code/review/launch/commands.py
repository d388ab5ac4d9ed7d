"""What a script's commands start: torchrun, its old module, accelerate launch, python under srun, with the options of each."""

from __future__ import annotations

from shardguide.guidance.hints import NamedTuple
from shardguide.knowledge import api, releases

from .shell import read
from .words import Command, Job, Script, Setting, Word

# Commands that only speak of what follows.
_TALK = frozenset(
    ("echo", "printf", "which", "command", "type", "pip", "pip3", "grep", "egrep", "cat", "alias", "pkill", "kill", "killall",
     "rm", "cp", "mv", "ls", "man", "sed", "awk", "cd", "mkdir", "export", "if", "pgrep", "test", "[", "[[", "conda", "git",
     "curl", "wget", "tail", "head", "tee", "trap")
)  # fmt: skip
_MODULES = {
    "torch.distributed.run": "torchrun",
    "torch.distributed.launch": "launch",
    "accelerate.commands.launch": "accelerate",
}
_SHELLS = ("bash", "sh", "zsh")
# Options of srun and sbatch that are read; each with its short form.
_SLURM = {
    "--nodes": "nodes", "-N": "nodes", "--ntasks": "ntasks", "-n": "ntasks", "--ntasks-per-node": "tasks",
    "--gres": "gres", "--gpus-per-node": "gpus", "--gpus": "all_gpus", "-G": "all_gpus", "--cpus-per-task": "cpus", "-c": "cpus",
    "--gpus-per-task": "task_gpus",
}  # fmt: skip


class Given(NamedTuple):
    """An option as a command has it."""

    name: str  # as the release spells it, with dashes
    value: Word | None  # None for a flag
    word: Word  # where it stands


class Launch(NamedTuple):
    """One command that starts training processes."""

    kind: str  # "torchrun", "launch" (the old module), "accelerate", "python"
    at: Word
    options: tuple[Given, ...]
    open: bool  # more options may come from variables that are not known
    strange: tuple[Word, ...]  # options that no such launcher has
    script: Word | None
    arguments: tuple[Word, ...]
    srun: dict[str, Word] | None  # the options of srun in front, None without srun
    wrapped: bool  # something else in front that may start it on every node: ssh, mpirun, a container's own launcher
    job: Job
    before: tuple[Setting, ...]
    background: bool
    depth: int

    def get(self, name: str) -> Word | None:
        """The value of an option that is given, the last one."""
        found = [one for one in self.options if one.name == name]
        return (found[-1].value or found[-1].word) if found else None

    def number(self, name: str) -> int | None:
        """The value of an option, as a number, where it is one that the file tells."""
        value = self.get(name)
        return int(value.text) if value is not None and value.text.isdigit() and len(value.text) < 7 else None


def options(release: str) -> dict[str, tuple[str, bool]]:
    """Spelling -> (name, whether it is a flag), of a release's torchrun; of all releases where that is not known."""
    out: dict[str, tuple[str, bool]] = {}
    for name in api.options():
        for one in (release,) if release else reversed(releases.known()):
            found = api.option(name, one)
            if found is not None:
                out.update((spelling, (name, found.flag)) for spelling in found.spellings)
                break
    return out


def launches(script: Script, where: str, job: Job, release: str) -> list[Launch]:
    """The launches among a script's commands, those inside ``bash -c`` too."""
    known = options(release)
    out: list[Launch] = []
    waiting: list[tuple[Command, tuple[Word, ...]]] = [(command, ()) for command in script.commands]
    for command, through in waiting:
        inner = _inner(command)
        if inner is not None and len(waiting) < 5000:
            at, place = inner
            nested = read(place.raw or place.text, where, place.line, place.column + 1)
            waiting.extend((one, (*through, *command.words[:at])) for one in nested.commands)
            continue
        found = _launch(command, through, job, known)
        if found is not None:
            out.append(found)
    return sorted(out, key=lambda one: (one.at.line, one.at.column))


def _inner(command: Command) -> tuple[int, Word] | None:
    """The place of ``bash`` and the script in ``… bash -c 'script'``."""
    words = command.words
    for at, word in enumerate(words[:-2]):
        if word.text.rpartition("/")[2] in _SHELLS and words[at + 1].text.startswith("-") and "c" in words[at + 1].text:
            return at, words[at + 2]
    return None


def _launch(command: Command, through: tuple[Word, ...], job: Job, known: dict[str, tuple[str, bool]]) -> Launch | None:
    words = command.words
    if not words or words[0].text in _TALK:
        return None
    front = tuple(word.text.rpartition("/")[2] for word in (*through, *words))
    srun = _srun((*through, *words)) if "srun" in front else None
    for at, word in enumerate(words):
        name = word.text.rpartition("/")[2]
        kind, skip = "", 1
        following = [other.text for other in words[at + 1 : at + 4]]
        if name == "torchrun":
            kind = "torchrun"
        elif name.startswith("python") and "-m" in following:
            skip = following.index("-m") + 2
            module = words[at + skip].text if at + skip < len(words) else ""
            kind = _MODULES.get(module, "")
            skip += 1
        elif name == "accelerate" and following[:1] == ["launch"]:
            kind, skip = "accelerate", 2
        if kind:
            rest = words[at + skip :]
            before = [one.text.rpartition("/")[2] for one in (*through, *words[:at])]
            wrapped = any(one in ("ssh", "pdsh", "mpirun", "mpiexec", "parallel", "xargs", "clush") for one in before)
            return _parsed(kind, word, rest, known, srun, wrapped, job, command)
        if name.startswith("python") and srun is not None:
            rest = words[at + 1 :]
            script = next((one for one in rest if one.text.endswith(".py")), None)
            if script is not None:
                launch = _parsed("python", word, (script,), {}, srun, False, job, command)
                return launch._replace(script=script)
    return None


def _parsed(
    kind: str, at: Word, rest: tuple[Word, ...], known: dict[str, tuple[str, bool]], srun: dict[str, Word] | None, wrapped: bool,
    job: Job, command: Command,
) -> Launch:  # fmt: skip
    """The options of a launcher up to the script, as argparse reads them."""
    found: list[Given] = []
    strange: list[Word] = []
    open_ = False
    script: Word | None = None
    arguments: tuple[Word, ...] = ()
    i = 0
    while i < len(rest):
        word = rest[i]
        name, sign, value = word.text.partition("=")
        if word.open:
            # One word of it may be the script; what follows can belong to either.
            open_ = True
            break
        if not name.startswith("-") or name == "-":
            script, arguments = word, rest[i + 1 :]
            break
        if kind == "accelerate":
            i += _accelerate(rest, i, found)
            continue
        if name not in known and name[:2] in known and not name.startswith("--") and not known[name[:2]][1]:
            name, sign, value = name[:2], "=", word.text[2:]  # -r3
        if name not in known:
            close = [one for one in known if one.startswith(name)]
            if len({known[one][0] for one in close}) == 1 and name.startswith("--"):
                name = close[0]  # argparse takes an unambiguous beginning
            else:
                asked = name in ("-h", "--help") or (kind == "launch" and name in ("--use-env", "--use_env"))
                if not close and not asked and word._replace(text=name).known:
                    strange.append(word)
                elif close:
                    open_ = True
                i += 1
                if kind != "launch" and not sign and i < len(rest) and not rest[i].text.startswith("-"):
                    open_ = True  # whether the next word is its value or the script
                    break
                continue
        full, flag = known[name]
        if flag:
            found.append(Given(full, None, word))
        elif sign:
            found.append(Given(full, word._replace(text=value, column=word.column + len(word.text) - len(value)), word))
        elif i + 1 < len(rest):
            i += 1
            found.append(Given(full, rest[i], word))
        i += 1
    return Launch(
        kind, at, tuple(found), open_, tuple(strange), script, arguments, srun, wrapped, job, command.before, command.background,
        command.depth,
    )  # fmt: skip


def _accelerate(rest: tuple[Word, ...], i: int, found: list[Given]) -> int:
    """An option of accelerate launch, under its name with underscores; how many words it takes."""
    word = rest[i]
    name, sign, value = word.text.partition("=")
    name = f"--{name[2:].replace('-', '_')}" if name.startswith("--") else name
    if sign:
        found.append(Given(name, word._replace(text=value), word))
        return 1
    following = rest[i + 1] if i + 1 < len(rest) else None
    takes = following is not None and not following.text.startswith("-") and not following.text.endswith(".py")
    found.append(Given(name, following if takes else None, word))
    return 1 + takes


def _srun(words: tuple[Word, ...]) -> dict[str, Word]:
    """The options of the srun among the words."""
    out: dict[str, Word] = {}
    at = next(i for i, word in enumerate(words) if word.text.rpartition("/")[2] == "srun")
    i = at + 1
    while i < len(words) and words[i].text.startswith(("-", "\x00", "\x01")):
        if words[i].open:
            out["open"] = words[i]
        name, value = slurm_option(words[i].text)
        if (name and not value and i + 1 < len(words) and not words[i].text.startswith("--")) or (
            name and not value and "=" not in words[i].text and i + 1 < len(words)
        ):
            i += 1
            value = words[i].text
        if name:
            out[name] = words[i]._replace(text=value)
        elif "=" not in words[i].text and i + 1 < len(words) and not words[i + 1].text.startswith("-"):
            following = words[i + 1].text.rpartition("/")[2]
            if following not in ("torchrun", "accelerate", *_SHELLS) and not following.startswith("python"):
                i += 1  # the value of an option that is of no interest
        i += 1
    return out


def slurm_option(text: str) -> tuple[str, str]:
    """An option of srun and sbatch as (what it is, its value so far); ("", "") for one that is not read."""
    if text.startswith("--"):
        name, _, value = text.partition("=")
        name, _, more = name.partition(" ")
        return _SLURM.get(name, ""), value or more.strip()
    return _SLURM.get(text[:2], ""), text[2:].strip().removeprefix("=")


def job(script: Script) -> Job:
    """What the lines #SBATCH in front of the first command ask for."""
    found: dict[str, str] = {}
    for line in script.directives:
        if line.text.startswith("hetjob") or line.text == "packjob":
            return Job(slurm=True, kind="Slurm")
        if script.first and line.line > script.first:
            continue
        name, value = slurm_option(line.text.partition(" #")[0].strip())
        if name:
            found[name] = value.strip().strip("\"'")
    nodes, ntasks, tasks = number(found.get("nodes")), number(found.get("ntasks")), number(found.get("tasks"))
    gpus = number(found.get("gpus", "").rpartition(":")[2]) or gres(found.get("gres", ""))
    every = number(found.get("all_gpus", "").rpartition(":")[2])
    if gpus is None and every is not None and nodes and every % nodes == 0:
        gpus = every // nodes
    if tasks is None and ntasks is not None and nodes and ntasks % nodes == 0:
        tasks = ntasks // nodes
    if not script.directives:
        return Job()
    return Job(nodes, gpus, tasks, number(found.get("cpus")), True, "Slurm")


def number(text: str | None) -> int | None:
    """A whole number, or None."""
    return int(text) if text and text.isdigit() and len(text) < 7 else None


def gres(text: str) -> int | None:
    """The GPUs in ``gpu:8`` or ``gpu:a100:8``; None for anything else."""
    parts = text.partition("(")[0].split(":")
    return number(parts[-1]) if parts[0] == "gpu" and len(parts) > 1 and "," not in text else None
