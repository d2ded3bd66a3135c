"""JSON as the standard library reads it, made strict: what our own reading of untrusted bytes is compared with."""

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

DEEPEST = 400
"""What is nested deeper than this may or may not be readable, for that depends on the stack."""

_WHITE_SPACE = " \t\n\r"


class NotJson(ValueError):
    """No JSON text in UTF-8 by RFC 8259."""


class TooDeep(NotJson):
    """JSON or not: it is nested deeper than `DEEPEST`."""


class Number(NamedTuple):
    """A number by its literal, for two numbers may be the same and their bytes not."""

    literal: str

    @property
    def is_integer(self) -> bool:
        return self.literal.lstrip("-").isdigit()


class Object(dict[str, Any]):
    """Of a name that comes twice the last counts; `pairs` has both."""

    def __init__(self, pairs: list[tuple[str, Any]]) -> None:
        super().__init__(pairs)
        self.pairs = pairs

    def all_of(self, name: str) -> list[Any]:
        return [value for each, value in self.pairs if each == name]


class Member(NamedTuple):
    """A name and value of an object, and the value's own text."""

    name: str
    value: Any
    text: str


def read_json(data: bytes) -> Any:
    """Raises NotJson, and its TooDeep."""
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
    """The members of an object in their order, each with its own text; None if it is JSON, but no object."""
    value, text = read_json(data), read_text(data)
    return list(_members(text)) if isinstance(value, Object) else None


def read_text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise NotJson(str(error)) from error


def depth_of(value: Any) -> int:
    """How many objects and arrays lie inside each other."""
    deepest, waiting = 0, [(value, 1)]
    while waiting:
        each, depth = waiting.pop()
        if isinstance(each, Object | list):
            deepest = max(deepest, depth)
            waiting += [(item, depth + 1) for item in _items(each)]
    return deepest


def has_endless_integer(value: Any) -> bool:
    """One of more than 4 300 digits, beyond which Python reads none."""
    return any(isinstance(each, Number) and each.is_integer and len(each.literal.lstrip("-")) > 4_300 for each in _all(value))


def _check(text: str, value: Any) -> None:
    if depth_of(value) > DEEPEST:
        raise TooDeep("nested too deep")
    if "\\" in text:
        for each in _all(value):
            _check_strings(each)


def _check_strings(value: Any) -> None:
    """Half a surrogate pair can be escaped, but it is no character."""
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


def _members(text: str) -> Iterator[Member]:
    """Of an object that was read before, so that nothing can be wrong."""
    at = _skip(text, 0) + 1
    while text[at := _skip(text, at)] != "}":
        at = _skip(text, at + 1) if text[at] == "," else at
        name, at = _DECODER.raw_decode(text, at)
        begin = _skip(text, _skip(text, at) + 1)
        value, at = _DECODER.raw_decode(text, begin)
        yield Member(name, value, text[begin:at])


def _skip(text: str, at: int) -> int:
    while text[at] in _WHITE_SPACE:
        at += 1
    return at


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON")


_DECODER = json.JSONDecoder(object_pairs_hook=Object, parse_int=Number, parse_float=Number, parse_constant=_refuse)
