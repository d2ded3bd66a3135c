"""The escapes of a HOCON text, which are JSON's: pyhocon knows half of them and keeps the others as they are."""

import re

from pyhocon import ConfigException, ConfigParser
from pyhocon.config_tree import ConfigQuotedString, ConfigUnquotedString

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
