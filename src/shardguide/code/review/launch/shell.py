"""Shell scripts, read far enough to know which commands are started with which words.

Quotes, continuation lines, comments, here-documents and variables of the same file are followed; what a run alone can tell
(arguments, command substitution, defaults that the environment may replace) is unknown. Nothing is executed.
"""

from __future__ import annotations

from shardguide.guidance.errors import UnusableInput

from .cursor import Cursor
from .words import EARLY, UNKNOWN, Command, Script, Setting, Word

_TASK = ("SLURM_NODEID", "SLURM_PROCID", "SLURM_LOCALID")  # differ between the tasks of one srun
_OPENING = {"if": 1, "for": 1, "while": 1, "until": 1, "case": 1, "select": 1}
_CLOSING = {"fi": -1, "done": -1, "esac": -1}
_PLAIN = {"then", "else", "elif", "do", "!", "{", "}"}
_SETTERS = ("export", "declare", "local", "readonly", "typeset")
_WORDS = 20_000  # of one script
_LONG = 10_000  # characters of a word with its variables filled in
_NAME = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_")


def read(text: str, where: str, line: int = 1, column: int = 1, batch: bool = False) -> Script:
    """A script's commands. ``batch``: Slurm runs it once, so that srun's tasks share what it fills in."""
    reader = _Reader(text, where, line, column, batch or (text.startswith("#!") and "\n#SBATCH" in text))
    reader.read()
    return Script(tuple(reader.commands), tuple(reader.settings), tuple(reader.directives), reader.first)


class _Reader(Cursor):
    def __init__(self, text: str, where: str, line: int, column: int, batch: bool) -> None:
        super().__init__(text, line, column)
        self.where, self.batch = where, batch
        self.commands: list[Command] = []
        self.settings: list[Setting] = []
        self.directives: list[Word] = []
        self.first = 0
        self.values: dict[str, str] = {}  # variables, as far as they are known
        self.lists: dict[str, list[Word]] = {}
        self.depth = 0
        self.heredocs: list[tuple[str, bool]] = []
        self.count = 0

    def read(self) -> None:
        words: list[Word] = []
        assigned: list[Setting] = []
        while self.at < len(self.text):
            c = self.text[self.at]
            if self._space(c):
                continue
            if c == "\n":
                self._end(words, assigned)
                self.at += 1
                self._newline()
                self._skip_heredocs()
            elif c == "#":
                end = self.text.find("\n", self.at)
                end = len(self.text) if end < 0 else end
                if self.text.startswith(("#SBATCH ", "#SBATCH\t"), self.at) and self.at == self.start:
                    self.directives.append(Word(self.text[self.at + 7 : end].strip(), self.line, 1))
                self.at = end
            elif c in ";|&()":
                self._operator(words, assigned)
            elif c in "<>" or (c.isdigit() and self.text[self.at + 1 : self.at + 2] in ("<", ">")):
                self._redirect()
            else:
                self._next(words, assigned)
        self._end(words, assigned)

    def _space(self, c: str) -> bool:
        """Pass over white space, a line that goes on included; whether there was some."""
        if c in " \t\r":
            self.at += 1
        elif c == "\\" and self.text[self.at + 1 : self.at + 2] == "\n":
            self.at += 2
            self._newline()
        else:
            return False
        return True

    def _operator(self, words: list[Word], assigned: list[Setting]) -> None:
        two = self.text[self.at : self.at + 2]
        if two == "&>":
            self.at += 1
            self._redirect()
            return
        background = two[0] == "&" and two != "&&"
        size = 2 if two in ("&&", "||", ";;", "|&") else 1
        if two[0] == "(" and words and self.text[self.at + 1 : self.at + 2] == ")":  # name() { … }: a function
            words.clear()
            assigned.clear()
            self.at += 2
            self.depth += 1
            return
        self._end(words, assigned, background)
        self.at += size

    def _redirect(self) -> None:
        while self.at < len(self.text) and self.text[self.at].isdigit():
            self.at += 1
        mark = self.text[self.at : self.at + 3]
        if mark == "<<<":
            self.at += 3
        elif mark[:2] == "<<":
            self.at += 2
            strip = self.text[self.at : self.at + 1] == "-"
            self.at += strip
            while self.text[self.at : self.at + 1] in (" ", "\t"):
                self.at += 1
            end = self._word().text
            self.heredocs.append((end, strip))
            return
        else:
            while self.text[self.at : self.at + 1] in ("<", ">", "&", "|"):
                self.at += 1
            if self.text[self.at : self.at + 1] == "(":  # <( … ): read as one group
                self._group()
                return
        while self.text[self.at : self.at + 1] in (" ", "\t"):
            self.at += 1
        if self.text[self.at : self.at + 1] not in ("", "\n", ";", "&", "|"):
            self._word()

    def _skip_heredocs(self) -> None:
        for end, strip in self.heredocs:
            while self.at < len(self.text):
                stop = self.text.find("\n", self.at)
                stop = len(self.text) if stop < 0 else stop
                body = self.text[self.at : stop]
                self.at = min(stop + 1, len(self.text))
                self._newline()
                if (body.strip() if strip else body.rstrip("\r")) == end:
                    break
        self.heredocs.clear()

    def _next(self, words: list[Word], assigned: list[Setting]) -> None:
        self._counted()
        name = self._assignment() if not words or words[0].text in _SETTERS else ""
        if name:
            value = self._value(name)
            if value is not None:
                assigned.append(Setting(name, value, bool(words)))
            return
        line, column = self.line, self.at - self.start + 1 + self.offset
        if not words:
            end = self.at
            while end < len(self.text) and self.text[end] in "abcdefghijklmnopqrstuvwxyz!{}":
                end += 1
            key = self.text[self.at : end]
            if key == "function" and self.text[end : end + 1] in (" ", "\t"):
                stop = self.text.find("{", self.at)
                self.at = len(self.text) if stop < 0 else stop
                self.depth += 1
                return
            if (key in _OPENING or key in _CLOSING or key in _PLAIN) and self.text[end : end + 1] in (
                "",
                " ",
                "\t",
                "\n",
                ";",
            ):
                self.at = end
                self.depth += _OPENING.get(key, 0) or _CLOSING.get(key, 0)
                if key == "}" and self.depth:
                    self.depth -= 1  # of a function; a plain group never raised it, and 0 is the least
                self.depth = max(0, self.depth)
                if key in ("for", "case", "select"):
                    self._header(key)
                return
        word = self._word()._replace(line=line, column=column)
        words.extend(self._split(word))

    def _header(self, key: str) -> None:
        """The rest of ``for x in …`` or ``case x in``: its variable is not known."""
        end = min(
            found
            for found in (self.text.find("\n", self.at), self.text.find(";", self.at), len(self.text))
            if found >= 0
        )
        name = self.text[self.at : end].split()[:1]
        if key != "case" and name:
            self.values.pop(name[0], None)
        if key == "case":
            end = self.text.find(" in", self.at)
            end = self.at if end < 0 else end + 3
        self.at = end

    def _assignment(self) -> str:
        """The name in ``name=``, ``name+=`` here; "" for any other word. Moves behind the sign."""
        end = self.at
        while end < len(self.text) and self.text[end] in _NAME:
            end += 1
        if end == self.at or self.text[self.at].isdigit():
            return ""
        name = self.text[self.at : end]
        if self.text.startswith("+=", end):
            self.at = end + 2
            if self.text[self.at : self.at + 1] != "(":
                self.values.pop(name, None)
                self._word()
            else:
                self.lists.pop(name, None)
                self._group()
            return "+"
        if self.text[end : end + 1] != "=":
            return ""
        self.at = end + 1
        return name

    def _value(self, name: str) -> Word | None:
        if name == "+":
            return None
        line, column = self.line, self.at - self.start + 1 + self.offset
        if self.text[self.at : self.at + 1] == "(":
            self.lists.pop(name, None)
            items = self._array()
            if items is not None and not self.depth:
                self.lists[name] = items
            return None
        value = Word("", line, column)
        if self.text[self.at : self.at + 1] not in ("", " ", "\t", "\n", ";", "&", "|"):
            value = self._word()._replace(line=line, column=column)
        return value

    def _array(self) -> list[Word] | None:
        self.at += 1
        out: list[Word] = []
        while self.at < len(self.text):
            c = self.text[self.at]
            if c == ")":
                self.at += 1
                return out
            if self._space(c):
                continue
            if c == "\n":
                self.at += 1
                self._newline()
            elif c == "#":
                end = self.text.find("\n", self.at)
                self.at = len(self.text) if end < 0 else end
            elif c in "();|&<>":
                return None
            else:
                line, column = self.line, self.at - self.start + 1 + self.offset
                self._counted()
                out.extend(self._split(self._word()._replace(line=line, column=column)))
        return None

    def _split(self, word: Word) -> list[Word]:
        """A word whose variables were filled in, as the words that the shell makes of it."""
        if word.raw.startswith("@"):
            parts = self.lists.get(word.raw[1:], [word._replace(text=UNKNOWN, raw="")])
        elif word.quoted or not any(c in word.text for c in " \t\n"):
            return [word]
        else:
            parts = [word._replace(text=part) for part in word.text.split()]
        self._counted(len(parts))
        return parts

    def _counted(self, words: int = 1) -> None:
        self.count += words
        if self.count > _WORDS:
            raise UnusableInput(f"{self.where}: more than {_WORDS} words, which is longer than any launch script.")

    def _word(self) -> Word:
        """One word from here: its text with known variables filled in."""
        out: list[str] = []
        quoted, raw = False, ""
        begin = self.at
        while self.at < len(self.text):
            c = self.text[self.at]
            if c in " \t\n\r;|&()<>":
                break
            if c == "\\":
                if self.text[self.at + 1 : self.at + 2] == "\n":
                    self.at += 2
                    self._newline()
                    continue
                quoted = True
                out.append(self.text[self.at + 1 : self.at + 2])
                self.at += 2
            elif c == "'":
                quoted = True
                end = self.text.find("'", self.at + 1)
                end = len(self.text) if end < 0 else end
                part = self.text[self.at + 1 : end]
                raw = part if not out else raw
                out.append(part)
                self._lines(part, self.at + 1)
                self.at = end + 1
            elif c == '"':
                quoted = True
                out.append(self._double())
            elif c == "$" or c == "`":
                out.append(self._expansion())
            else:
                out.append(c)
                self.at += 1
        text = "".join(out)
        if len(text) > _LONG and len(text) > self.at - begin:
            text = UNKNOWN  # variables that grow with every assignment
        source = self.text[begin : self.at]
        if source.startswith(('"${', "${")) and source.rstrip('"').endswith(("[@]}", "[*]}")):
            raw = "@" + source.strip('"')[2:-4]
        return Word(text, self.line, 1, quoted, raw)

    def _double(self) -> str:
        out: list[str] = []
        self.at += 1
        while self.at < len(self.text):
            c = self.text[self.at]
            if c == '"':
                self.at += 1
                break
            if c == "\\":
                following = self.text[self.at + 1 : self.at + 2]
                out.append(
                    following if following in ('"', "$", "`", "\\") else "" if following == "\n" else "\\" + following
                )
                self.at += 2
                if following == "\n":
                    self._newline()
            elif c in "$`":
                out.append(self._expansion())
            else:
                out.append(c)
                self.at += 1
                if c == "\n":
                    self._newline()
        return "".join(out)

    def _expansion(self) -> str:
        """What ``$…`` or a back-quoted command stands for."""
        if self.text[self.at] == "`":
            end = self.text.find("`", self.at + 1)
            end = len(self.text) - 1 if end < 0 else end
            self._lines(self.text[self.at : end], self.at)
            self.at = end + 1
            return UNKNOWN
        following = self.text[self.at + 1 : self.at + 2]
        if following == "(":
            self.at += 1
            self._group()
            return UNKNOWN
        if following == "{":
            end = self._matching("{", "}")
            inner = self.text[self.at + 2 : end]
            self._lines(inner, self.at + 2)
            self.at = end + 1
            name = inner
        else:
            end = self.at + 1
            while end < len(self.text) and self.text[end] in _NAME:
                end += 1
            if end == self.at + 1:
                self.at = end + (following in ("@", "*", "#", "?", "$", "!", "-") and following != "")
                return UNKNOWN if following else "$"
            name = self.text[self.at + 1 : end]
            self.at = end
        if name in _TASK and self.batch:
            return EARLY
        return self.values.get(name, UNKNOWN)

    def _end(self, words: list[Word], assigned: list[Setting], background: bool = False) -> None:
        """A command is over."""
        setter = bool(words) and words[0].text in _SETTERS
        if (words or assigned) and not self.first:
            self.first = words[0].line if words else assigned[0].value.line
        if assigned and (setter or not words):
            for one in assigned:
                known = one.value.known or one.value.text == EARLY
                # Under a condition, or where the value came from the environment: not known after it.
                if known and not self.depth:
                    self.values[one.name] = one.value.text
                else:
                    self.values.pop(one.name, None)
            self.settings.extend(assigned)
        elif words:
            if words[0].text in ("source", ".", "eval"):
                self.values.clear()  # it may set anything
                self.lists.clear()
            elif words[0].text in ("read", "unset", "mapfile", "readarray", "getopts"):
                for word in words[1:]:
                    self.values.pop(word.text, None)
            self.commands.append(Command(tuple(words), tuple(assigned), background, self.depth))
        words.clear()
        assigned.clear()
