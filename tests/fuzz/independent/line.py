"""Reads a line of the file transport as docs/contract.md, section 10 describes it, with the standard library."""

import base64
import re
from typing import Any

from fuzz.independent.json import Member, NotJson, Object, read_members

from notification_service.connectors.line_format import Line

_BASE64 = re.compile("(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?")
"""Base64 by RFC 4648, section 4: the standard library is more lenient."""


def read_line(data: bytes) -> Line | None:
    """Return the record of the line; None if it is no record.

    Raises:
        NotJson: The line is no JSON.
        TooDeep: The line is nested so deep that either answer is right.
    """
    try:
        members = read_members(data.removeprefix(b"\xef\xbb\xbf"))
        return None if members is None else Line(_value(members), _key(members), _headers(members))
    except NotARecord:
        return None


class NotARecord(ValueError):
    """JSON, but not of the form in docs/contract.md, section 10."""


def find_line(data: bytes) -> Line | None:
    """The same, but None for a value that is nested too deep or is no JSON."""
    try:
        return read_line(data)
    except NotJson:
        return None


def _value(members: list[Member]) -> bytes | None:
    values = [each for each in members if each.name == "value"]
    binary = _last_base64(members, "value-base64", nullable=True)
    if bool(values) == any(each.name == "value-base64" for each in members):
        raise NotARecord("one of value and value-base64 is needed")
    if not values:
        return binary
    last = values[-1]
    return (last.value if isinstance(last.value, str) else last.text).encode()


def _key(members: list[Member]) -> bytes | None:
    keys = [each.value for each in members if each.name == "key"]
    _demand(all(key is None or isinstance(key, str) for key in keys))
    binary = _last_base64(members, "key-base64", nullable=True)
    if not keys or keys[-1] is None:
        return binary
    _demand(binary is None)
    key: str = keys[-1]
    return key.encode()


def _last_base64(members: list[Member], name: str, *, nullable: bool) -> bytes | None:
    decoded = None
    for each in members:
        if each.name == name:
            decoded = _base64(each.value, nullable=nullable)
    return decoded


def _headers(members: list[Member]) -> tuple[tuple[str, bytes], ...]:
    """Return the headers of the last `headers` member. All such members must have the right types; only the last
    one's headers must have exactly one value each.
    """
    given = [each.value for each in members if each.name == "headers"]
    for each in given:
        _demand_types(each)
    last = given[-1] if given else None
    if isinstance(last, Object):
        return tuple((name, text.encode()) for name, text in last.items())
    return tuple(map(_header, last or ()))


def _demand_types(headers: Any) -> None:
    if isinstance(headers, Object):
        _demand(all(isinstance(text, str) for _, text in headers.pairs))
    elif headers is not None:
        _demand(isinstance(headers, list) and all(isinstance(each, Object) for each in headers))
        for each in headers:
            names = each.all_of("name")
            _demand(bool(names) and all(isinstance(text, str) for text in [*names, *each.all_of("value")]))
            for text in each.all_of("value-base64"):
                _base64(text, nullable=False)


def _header(header: Object) -> tuple[str, bytes]:
    _demand(("value" in header) != ("value-base64" in header))
    if "value" in header:
        return header["name"], header["value"].encode()
    return header["name"], base64.b64decode(header["value-base64"])


def _base64(value: Any, *, nullable: bool) -> bytes | None:
    if value is None and nullable:
        return None
    _demand(isinstance(value, str) and _BASE64.fullmatch(value) is not None)
    return base64.b64decode(value)


def _demand(is_so: bool) -> None:
    if not is_so:
        raise NotARecord("not of the form of a line")
