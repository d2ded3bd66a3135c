"""The escapes of a HOCON text, which are JSON's: pyhocon knows half of them and keeps the others as they are."""

import re

from pyhocon import ConfigException, ConfigParser
from pyhocon.config_tree import ConfigQuotedString, ConfigUnquotedString

_HEXADECIMAL = "\ufdd0"
"""Stands for `\\u` until the digits after it are read: a code point that no text has."""

_ESCAPED = re.compile(f"{_HEXADECIMAL}([0-9A-Fa-f]{{4}})?")


class UnknownEscape(ConfigException):  # type: ignore[misc] # pyhocon ships no types.
    """A backslash that begins no escape. The text shows nothing of what was written: it may be a secret."""

    def __init__(self) -> None:
        super().__init__(r"a backslash begins one of \" \\ \/ \b \f \n \r \t \uXXXX; a literal backslash is written \\")


class Escapes(dict[str, str]):
    """What pyhocon asks for the meaning of two characters, of which the first is a backslash."""

    def get(self, escape: str, default: object = None) -> str:  # noqa: ARG002 - as pyhocon calls it.
        if escape not in self:
            raise UnknownEscape
        return self[escape]


ESCAPES = Escapes(ConfigParser.REPLACEMENTS | {r"\/": "/", r"\b": "\b", r"\f": "\f", r"\u": _HEXADECIMAL})


class QuotedString(ConfigQuotedString):  # type: ignore[misc] # pyhocon ships no types.
    """As pyhocon makes it, with the characters that `\\u` stands for."""

    def __init__(self, value: str, *place: object) -> None:
        super().__init__(_unescaped(value), *place)


def unquoted_string(value: str) -> ConfigUnquotedString:
    """The same without quotes, where pyhocon reads escapes too."""
    return ConfigUnquotedString(_unescaped(value))


def _unescaped(text: str) -> str:
    """Two escapes are one character where they are a surrogate pair."""
    if _HEXADECIMAL not in text:
        return text
    try:
        return _ESCAPED.sub(lambda match: chr(int(match[1], 16)), text).encode("utf-16", "surrogatepass").decode("utf-16")
    except (TypeError, UnicodeDecodeError) as error:
        raise UnknownEscape from error
