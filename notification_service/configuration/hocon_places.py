"""Where the keys of a HOCON text stand, and which brace of it is not closed. Pure.

pyhocon keeps no places of keys, and names the line at which it gave up, not the brace that is missing. What is read here is shown
to people and never used as a value.
"""

import re
from dataclasses import dataclass, field
from typing import NamedTuple

_CLOSES = {"{": "}", "[": "]"}
_NAMES = {"{": "brace", "[": "bracket"}
_LONGEST = 60
_DEEPEST = 500
_INDENT = re.compile(r"[ \t]*")


def _token(unquoted: str) -> re.Pattern[str]:
    return re.compile(
        r"(?P<skipped>(?:#|//)[^\n]*|[ \t\r]+|\\\r?\n)"
        r'|(?P<quoted>""".*?"*"""|"(?:[^"\\\n]|\\.)*")'
        r"|(?P<substitution>\$\{[^}\n]{0,200}\})"
        r"|(?P<mark>\+=|[{}\[\],=\n]|:)"
        rf"|(?P<text>{unquoted}|.)",
        re.DOTALL,
    )


# A text without quotes may have colons and slashes, as those of a URL, but a key ends at a colon.
_IN_KEY = _token(r'(?:[^\s"{}\[\],=:#$\\+]|\\.)+')
_IN_VALUE = _token(r'(?:[^\s"{}\[\],=#$\\+]|\\.)+')
_LONGEST_INCLUDE = 6
_INCLUDED = ("", "file(", "required(", "required(file(")


class Assignment(NamedTuple):
    """A key that gets a value in a line. `optional` is NAME where the value is `${?NAME}` alone, which may leave it as it was."""

    path: str
    line: int
    optional: str | None = None


class Include(NamedTuple):
    """An include of a file, whose keys belong to the section `prefix` (with a dot at its end, or empty)."""

    prefix: str
    file: str


class Scan(NamedTuple):
    """What stands in a text, in its order. `flaw` says which brace, bracket or quote is not closed, None if none."""

    found: tuple[Assignment | Include, ...]
    flaw: str | None


@dataclass(slots=True)
class _Frame:
    """A section or list that is being read. Of what is in a list `prefix` is None: it has no path of its own."""

    opener: str
    line: int
    indent: int
    prefix: str | None
    name: str = ""
    path: str = ""
    key: list[str] = field(default_factory=list)
    key_line: int = 0
    value: list[str] | None = None
    """The parts of the value that is being read, None while a key is being read."""
    number: int = 0
    """The place of the assignment among all that was found."""


def scan(text: str) -> Scan:
    """Read the keys of a text. One that is no HOCON is read as far as its braces match."""
    scanner = _Scanner(text)
    scanner.read()
    return Scan(tuple(each for each in scanner.found if each is not None), scanner.flaw)


class _Scanner:
    def __init__(self, text: str) -> None:
        self.found: list[Assignment | Include | None] = []
        self.flaw: str | None = None
        self._text = text
        self._line, self._line_begin = 1, 0
        self._frames = [_Frame("", 0, 0, "")]
        self._suspect: _Frame | None = None

    def read(self) -> None:
        at, end = 0, len(self._text)
        while at < end and self.flaw is None:
            match = (_IN_KEY if self._frames[-1].value is None else _IN_VALUE).match(self._text, at)
            assert match is not None
            token = match[0]
            if match.lastgroup == "mark":
                self._take_mark(token, at)
            elif match.lastgroup != "skipped":
                self._take_text(token)
            at = match.end()
            if "\n" in token:
                self._line += token.count("\n")
                self._line_begin = at - len(token) + token.rindex("\n") + 1
        if self.flaw is None:
            self._end_value()
            if len(self._frames) > 1:
                self._note_unclosed()

    def _take_text(self, text: str) -> None:
        frame = self._frames[-1]
        if text == '"':
            self.flaw = f"line {self._line}: a double quote is not closed in this line"
        elif frame.value is not None:
            frame.value.append(text)
        else:
            if _is_include(frame.key) and text.startswith('"') and frame.prefix is not None:
                self.found.append(Include(frame.prefix, text.strip('"')))
            frame.key_line = frame.key_line if frame.key else self._line
            frame.key.append(text)

    def _take_mark(self, mark: str, at: int) -> None:
        frame = self._frames[-1]
        if mark in _CLOSES:
            self._open(mark)
        elif mark in _CLOSES.values():
            self._end_value()
            self._close(mark, at)
        elif mark == ",":
            self._end_value()
        elif mark == "\n":
            # A brace may stand in the line after its key, and a value in the line after its equals sign.
            if frame.value or (frame.key and frame.key[0].lower() == "include"):
                self._end_value()
        elif frame.value is None:
            frame.path, frame.value, frame.number = _path_of(frame), [], len(self.found)
            self.found.append(None)
        else:
            frame.value.append(mark)

    def _open(self, mark: str) -> None:
        if len(self._frames) > _DEEPEST:
            self.flaw = f"line {self._line}: sections are nested deeper than {_DEEPEST}"
            return
        frame = self._frames[-1]
        # What stands behind a text is no section but a mistake, and may be a secret: it gets no name.
        is_joined = any(not each.startswith(("{", "${")) for each in frame.value or ())
        path = frame.path if frame.value is not None else _path_of(frame)
        path = "" if is_joined or frame.prefix is None else path
        is_nameless = is_joined or frame.prefix is None or mark == "["
        prefix = None if is_nameless else f"{path}." if path else ""
        self._frames.append(_Frame(mark, self._line, self._indent(), prefix, path, value=[] if mark == "[" else None))
        if frame.value is None:
            frame.key.clear()
        else:
            frame.value.append(mark)

    def _end_value(self) -> None:
        frame = self._frames[-1]
        if frame.opener == "[":
            return
        if frame.prefix is not None and any(each != "{" for each in frame.value or ()):
            assert frame.value is not None
            alone = frame.value[0] if len(frame.value) == 1 else ""
            optional = alone[3:-1].strip() if alone.startswith("${?") else None
            self.found[frame.number] = Assignment(frame.path, frame.key_line, optional)
        frame.key.clear()
        frame.value = None

    def _close(self, mark: str, at: int) -> None:
        frame = self._frames[-1]
        if frame.opener == "":
            self.flaw = f"line {self._line}: this {mark} closes nothing"
        elif _CLOSES[frame.opener] != mark:
            self._note_unclosed()
        else:
            is_first = self._line_begin + self._indent() == at
            if is_first and self._suspect is None and self._indent() != frame.indent:
                self._suspect = frame
            self._frames.pop()

    def _note_unclosed(self) -> None:
        frame = self._suspect or self._frames[-1]
        name = f" of {frame.name[:_LONGEST]}" if frame.name else ""
        guess = " (by the indentation)" if self._suspect else ""
        closing = f"its {_CLOSES[frame.opener]} is missing{guess}"
        self.flaw = f"line {frame.line}: the {_NAMES[frame.opener]} {frame.opener}{name} is not closed: {closing}"

    def _indent(self) -> int:
        """Return how many blanks the line begins with."""
        match = _INDENT.match(self._text, self._line_begin)
        assert match is not None
        return match.end() - self._line_begin


def _is_include(key: list[str]) -> bool:
    return 0 < len(key) < _LONGEST_INCLUDE and key[0].lower() == "include" and "".join(key[1:]) in _INCLUDED


def _path_of(frame: _Frame) -> str:
    return (frame.prefix or "") + " ".join(each.strip('"') for each in frame.key)
