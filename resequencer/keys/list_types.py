"""The value types of configuration keys that take a list of numbers, of objects, or of topic filters."""

import ipaddress
import re
from typing import Any, NamedTuple

import msgspec

from resequencer.keys.value_types import Mismatch, Switch, Url, Whole

QUEUE_PATTERN = r"[A-Za-z0-9._:/$@+-]{1,200}"
"""Braces and spaces are left out, for the names of storages and of source positions are made of it."""

_MOST = 1_000
_LONGEST_SELECTOR = 2_000
_LONGEST_FILTER = 1_000


class Wholes(msgspec.Struct, frozen=True):
    """A list of different whole numbers. The text `empty` describes what an empty list means."""

    least: int
    most: int
    empty: str

    @property
    def expects(self) -> str:
        return f"a list of different whole numbers from {self.least} to {self.most}, such as [0, 1]; empty: {self.empty}"

    def read(self, value: Any) -> tuple[int, ...]:
        if not isinstance(value, list) or len(value) > _MOST:
            raise Mismatch
        whole = Whole(self.least, self.most)
        found = tuple(number for each in value if (number := whole.read(each)) is not None)
        if len(set(found)) < len(value):
            raise Mismatch
        return found

    def show(self, value: tuple[int, ...]) -> list[int]:
        return list(value)


class TopicFilters(msgspec.Struct, frozen=True):
    """A list of different topic filters of MQTT, at least one. A shared subscription is none: it keeps no order."""

    expects: str = (
        'a list of different topic filters of MQTT, such as ["IPF_PROCESSING_DATA/#"]; none of them begins with $share/'
    )

    def read(self, value: Any) -> tuple[str, ...]:
        if not isinstance(value, list) or not 0 < len(value) <= _MOST or not all(map(_is_topic_filter, value)):
            raise Mismatch
        if len(set(value)) < len(value):
            raise Mismatch
        return tuple(value)

    def show(self, value: tuple[str, ...]) -> list[str]:
        return list(value)


class QueuePart(NamedTuple):
    """The messages of a queue that match a selector of JMS; with an empty selector all of them.

    Of the consumers of an exclusive queue the broker serves one.
    """

    queue: str
    selector: str = ""
    is_exclusive: bool = False


class QueueParts(msgspec.Struct, frozen=True):
    """A list of parts of queues: objects with `queue`, with `selector` if it is not the whole queue, and with `exclusive`."""

    expects: str = 'a list of queues with selectors, such as [{ queue = "EVENTS", selector = "part = 0" }]'

    def read(self, value: Any) -> tuple[QueuePart, ...]:
        if not isinstance(value, list) or len(value) > _MOST:
            raise Mismatch
        return tuple(map(_queue_part, value))

    def show(self, value: tuple[QueuePart, ...]) -> list[dict[str, str | bool]]:
        return [
            {"queue": each.queue}
            | ({"selector": each.selector} if each.selector else {})
            | ({"exclusive": True} if each.is_exclusive else {})
            for each in value
        ]


def _is_topic_filter(value: Any) -> bool:
    """Return whether it is a filter: `+` is a whole level, `#` is the whole last level."""
    if not isinstance(value, str) or not 0 < len(value) <= _LONGEST_FILTER or not value.isprintable():
        return False
    levels = value.split("/")
    is_whole = all(each == "+" or not ("+" in each or "#" in each) for each in levels[:-1])
    return is_whole and (levels[-1] in ("+", "#") or not set("+#") & set(levels[-1])) and levels[0] != "$share"


def _queue_part(value: Any) -> QueuePart:
    if not isinstance(value, dict) or "queue" not in value or not value.keys() <= {"queue", "selector", "exclusive"}:
        raise Mismatch
    queue, selector = value["queue"], value.get("selector", "")
    if not isinstance(queue, str) or not re.fullmatch(QUEUE_PATTERN, queue, re.ASCII):
        raise Mismatch
    if not isinstance(selector, str) or len(selector) > _LONGEST_SELECTOR or not selector.isprintable():
        raise Mismatch
    return QueuePart(queue, selector.strip(), Switch().read(value.get("exclusive", False)))


class Urls(msgspec.Struct, frozen=True):
    """A list of URLs with one of the schemes. A password in a URL is refused, because the list is shown."""

    schemes: tuple[str, ...]

    @property
    def expects(self) -> str:
        return "a list of URLs without a login that begin with " + " or ".join(f"{each}://" for each in self.schemes)

    def read(self, value: Any) -> tuple[str, ...]:
        if not isinstance(value, list):
            raise Mismatch
        return tuple(str(Url(self.schemes).read(each)).rstrip("/") for each in map(_without_login, value))

    def show(self, value: tuple[str, ...]) -> list[str]:
        return list(value)


class Networks(msgspec.Struct, frozen=True):
    """A list of IP addresses and networks, such as 10.0.0.0/8."""

    expects: str = 'a list of IP addresses or networks, such as ["127.0.0.1", "10.0.0.0/8"]'

    def read(self, value: Any) -> tuple[str, ...]:
        if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
            raise Mismatch
        try:
            return tuple(str(ipaddress.ip_network(each)) for each in value)
        except ValueError as error:
            raise Mismatch from error

    def show(self, value: tuple[str, ...]) -> list[str]:
        return list(value)


def _without_login(value: Any) -> Any:
    if isinstance(value, str) and "@" in value:
        raise Mismatch
    return value
