"""Reads JSON with the standard library, made strict. Our own reading of untrusted bytes is compared with it."""

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

DEEPEST = 400
"""Values that are nested deeper may or may not be readable, depending on the stack."""

LONGEST_INTEGER = 4_300
"""Python reads no number with more digits."""

_WHITE_SPACE = " \t\n\r"


class NotJson(ValueError):
    """The bytes are no JSON text in UTF-8 by RFC 8259."""


class TooDeep(NotJson):
    """The value is nested deeper than `DEEPEST`; it may or may not be JSON."""


class Number(NamedTuple):
    """A number by its literal, because two equal numbers may have different bytes."""

    literal: str

    @property
    def is_integer(self) -> bool:
        return self.literal.lstrip("-").isdigit()


class Object(dict[str, Any]):
    """An object. If a name comes twice, the last one counts; `pairs` has both."""

    def __init__(self, pairs: list[tuple[str, Any]]) -> None:
        super().__init__(pairs)
        self.pairs = pairs

    def all_of(self, name: str) -> list[Any]:
        return [value for each, value in self.pairs if each == name]


class Member(NamedTuple):
    """A name and value of an object, with the value's own text."""

    name: str
    value: Any
    text: str


def read_json(data: bytes) -> Any:
    """Read JSON. Raises NotJson, or its subclass TooDeep."""
    text = read_text(data)
    try:
        value = _DECODER.decode(text)
    except RecursionError as error:
        raise TooDeep("nested too deep") from error
    except ValueError as error:
        raise NotJson(str(error)) from error
    _check(text, value)
    return value


def read_members(data: bytes) -> list[Member] | None:
    """Return the members of an object in order, each with its own text; None if the JSON is no object.

    Raises as `read_json`.
    """
    text = read_text(data)
    if not text.lstrip(_WHITE_SPACE).startswith("{"):
        read_json(data)
        return None
    try:
        members, end = _members(text)
    except RecursionError as error:
        raise TooDeep("nested too deep") from error
    except (ValueError, IndexError) as error:
        raise NotJson(str(error)) from error
    if text[end:].strip(_WHITE_SPACE):
        raise NotJson("something behind the object")
    _check(text, Object([(each.name, each.value) for each in members]))
    return members


def read_text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise NotJson(str(error)) from error


def depth_of(value: Any) -> int:
    """Return how deep objects and arrays are nested."""
    deepest, waiting = 0, [(value, 1)]
    while waiting:
        each, depth = waiting.pop()
        if isinstance(each, Object | list):
            deepest = max(deepest, depth)
            waiting += [(item, depth + 1) for item in _items(each)]
    return deepest


def has_endless_integer(value: Any) -> bool:
    """Return whether a number has more than `LONGEST_INTEGER` digits."""
    numbers = (each for each in _all(value) if isinstance(each, Number) and each.is_integer)
    return any(len(each.literal.lstrip("-")) > LONGEST_INTEGER for each in numbers)


def _check(text: str, value: Any) -> None:
    if text.count("[") + text.count("{") > DEEPEST and depth_of(value) > DEEPEST:
        raise TooDeep("nested too deep")
    if "\\" in text:
        for each in _all(value):
            _check_strings(each)


def _check_strings(value: Any) -> None:
    """Refuse half of a surrogate pair: it can be escaped, but is no character."""
    names = [name for name, _ in value.pairs] if isinstance(value, Object) else []
    for each in [*names, *([value] if isinstance(value, str) else [])]:
        try:
            each.encode()
        except UnicodeEncodeError as error:
            raise NotJson(str(error)) from error


def _all(value: Any) -> Iterator[Any]:
    waiting = [value]
    while waiting:
        each = waiting.pop()
        yield each
        if isinstance(each, Object | list):
            waiting += _items(each)


def _items(value: Any) -> list[Any]:
    return [item for _, item in value.pairs] if isinstance(value, Object) else value


def _members(text: str) -> tuple[list[Member], int]:
    """Return the members of the object at the beginning of the text, and where it ends. Raises ValueError or
    IndexError if there is none.
    """
    members: list[Member] = []
    at = _skip(text, _skip(text, 0) + 1)
    while text[at] != "}" or members:
        name, end = _DECODER.raw_decode(text, at)
        at = _skip(text, end)
        if not isinstance(name, str) or text[at] != ":":
            raise NotJson("no name")
        begin = _skip(text, at + 1)
        value, end = _DECODER.raw_decode(text, begin)
        members.append(Member(name, value, text[begin:end]))
        at = _skip(text, end)
        if text[at] == "}":
            break
        if text[at] != ",":
            raise NotJson("neither a comma nor the end")
        at = _skip(text, at + 1)
    return members, at + 1


def _skip(text: str, at: int) -> int:
    while text[at] in _WHITE_SPACE:
        at += 1
    return at


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON")


_DECODER = json.JSONDecoder(object_pairs_hook=Object, parse_int=Number, parse_float=Number, parse_constant=_refuse)
