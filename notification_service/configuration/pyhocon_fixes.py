"""Corrects what pyhocon 0.3 gets wrong, and collects what it reports to its logger only."""

import logging
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pyhocon import ConfigException, ConfigParser, ConfigTree, config_parser
from pyhocon.config_tree import ConfigQuotedString, ConfigUnquotedString, ConfigValues
from pyparsing import ParseBaseException

from resequencer.errors import ConfigurationError

_HEXADECIMAL = "\ufdd0"
"""Stands for `\\u` until its digits are read: a code point that no text contains."""

_ESCAPED = re.compile(f"{_HEXADECIMAL}([0-9A-Fa-f]{{4}})?")


class UnknownEscape(ConfigException):  # type: ignore[misc] # pyhocon ships no types.
    """A backslash that begins no escape. The error does not show the text, because it may be a secret."""

    def __init__(self) -> None:
        super().__init__(r"a backslash begins one of \" \\ \/ \b \f \n \r \t \uXXXX; a literal backslash is written \\")


class Escapes(dict[str, str]):
    """The table that pyhocon asks for the meaning of two characters, the first of which is a backslash."""

    def get(self, escape: str, default: object = None) -> str:  # noqa: ARG002 - as pyhocon calls it.
        if escape not in self:
            raise UnknownEscape
        return self[escape]


ESCAPES = Escapes(ConfigParser.REPLACEMENTS | {r"\/": "/", r"\b": "\b", r"\f": "\f", r"\u": _HEXADECIMAL})


class QuotedString(ConfigQuotedString):  # type: ignore[misc] # pyhocon ships no types.
    """pyhocon's quoted string, with the characters of `\\u` escapes replaced."""

    def __init__(self, value: str, *place: object) -> None:
        super().__init__(_unescaped(value), *place)


def unquoted_string(value: str) -> ConfigUnquotedString:
    """Return a string without quotes, in which pyhocon reads escapes too."""
    return ConfigUnquotedString(_unescaped(value))


def _unescaped(text: str) -> str:
    """Return the text with its escapes replaced. Two escapes that are a surrogate pair give one character."""
    if _HEXADECIMAL not in text:
        return text
    try:
        return _ESCAPED.sub(lambda match: chr(int(match[1], 16)), text).encode("utf-16", "surrogatepass").decode("utf-16")
    except (TypeError, UnicodeDecodeError) as error:
        raise UnknownEscape from error


FAILURES = (ParseBaseException, ConfigException, OSError, ValueError, ArithmeticError, LookupError, AttributeError, TypeError)
"""The errors that pyhocon raises for input that is no HOCON: its own, and those of its bugs on unexpected input."""


class Includes(logging.Handler):
    """Listens to pyhocon's logger, the only source for which file is being read and which include was skipped."""

    def __init__(self, where: str) -> None:
        super().__init__(logging.DEBUG)
        self.missing: list[ConfigurationError] = []
        self._reading = [where]
        self._prefixes: list[object] = [None]

    def emit(self, record: logging.LogRecord) -> None:
        arguments = record.args if isinstance(record.args, tuple) else ()
        if record.msg.startswith("Cannot include"):
            self.note_missing(str(arguments[0]))
        elif "Loading following configs" in record.msg and not arguments[1]:
            self.note_missing(str(arguments[0]).strip(" []"))
        elif "Loading config from file" in record.msg:
            self._prefixes.append(arguments[0])
            self._reading.append(str(arguments[1]))
        elif "Result" in record.msg and arguments[0] == self._prefixes[-1]:
            self._prefixes.pop()
            self._reading.pop()

    @property
    def current(self) -> str:
        """The file that is being read, or that was being read when reading failed."""
        return self._reading[-1]

    def note_missing(self, included: str) -> None:
        """Record an include of a missing file, with the file that includes it."""
        asking = next((each for each in reversed(self._reading) if each != included), included)
        self.missing.append(ConfigurationError(asking, f"includes {included}, which does not exist or cannot be read"))

    def recursion(self) -> str:
        """Return why the recursion went too deep."""
        return "includes itself" if len(set(self._reading)) < len(self._reading) else "is nested too deep"


@contextmanager
def mended(includes: Includes) -> Iterator[None]:
    """Make pyhocon merge and unescape as HOCON requires, and report its reading to `includes`. Used at start, by one thread."""
    logger = logging.getLogger("pyhocon.config_parser")
    level, propagate = logger.level, logger.propagate
    replaced = [(owner, name, vars(owner)[name]) for owner, name, _ in _MENDED]
    logger.addHandler(includes)
    logger.setLevel(logging.DEBUG)
    logger.propagate = False
    for owner, name, ours in _MENDED:
        setattr(owner, name, ours)
    try:
        with warnings.catch_warnings():
            # pyhocon logs with a deprecated method.
            warnings.simplefilter("ignore", DeprecationWarning)
            yield
    finally:
        for owner, name, pyhocons in replaced:
            setattr(owner, name, pyhocons)
        logger.removeHandler(includes)
        logger.setLevel(level)
        logger.propagate = propagate


def merge(lower: ConfigTree, upper: ConfigTree, copy_trees: bool = False) -> ConfigTree:
    """Merge `upper` over `lower`, in place; afterwards the two share no section.

    pyhocon's own merge loses the 6 when `a = 6, a = ${?NAME}` comes over another `a`.
    """
    for key in list(upper):
        above, below = dict.get(upper, key), dict.get(lower, key)
        if isinstance(above, ConfigTree) and isinstance(below, ConfigValues):
            # `a = ${b}`, then `a { c = 1 }`: what b is will be merged with it once b is known.
            below.tokens.append(merge(ConfigTree(), above))
            continue
        if isinstance(above, ConfigTree):
            below = below if isinstance(below, ConfigTree) else ConfigTree()
            above = merge(merge(ConfigTree(), below) if copy_trees else below, above)
        if isinstance(above, ConfigValues):
            _lay_under(above, below)
            above.parent, above.key = lower, key
        lower[key] = above
        if lower.root:
            lower.history.setdefault(key, []).append(above)
    return lower


def _lay_under(value: ConfigValues, below: Any) -> None:
    """Give the lowest value that overrides something a value to fall back on."""
    lowest, seen = value, [value]
    while isinstance(lowest.overridden_value, ConfigValues) and all(lowest.overridden_value is not each for each in seen):
        lowest = lowest.overridden_value
        seen.append(lowest)
    if lowest.overridden_value is None and all(below is not each for each in seen):
        lowest.overridden_value = below


_MENDED: tuple[tuple[Any, str, object], ...] = (
    (ConfigTree, "merge_configs", staticmethod(merge)),
    (ConfigParser, "REPLACEMENTS", ESCAPES),
    (config_parser, "ConfigQuotedString", QuotedString),
    (config_parser, "ConfigUnquotedString", unquoted_string),
)
