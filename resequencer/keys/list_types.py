"""The value types of configuration keys that take a list of numbers, URLs or networks."""

import ipaddress
from typing import Any

import msgspec

from resequencer.keys.value_types import Mismatch, Url, Whole

MAX_ITEMS = 1_000


class Wholes(msgspec.Struct, frozen=True):
    """A list of different whole numbers. The text `empty` describes what an empty list means."""

    least: int
    most: int
    empty: str

    @property
    def expects(self) -> str:
        return f"a list of different whole numbers from {self.least} to {self.most}, such as [0, 1]; empty: {self.empty}"

    def read(self, value: Any) -> tuple[int, ...]:
        if not isinstance(value, list) or len(value) > MAX_ITEMS:
            raise Mismatch
        whole = Whole(self.least, self.most)
        found = tuple(number for each in value if (number := whole.read(each)) is not None)
        if len(set(found)) < len(value):
            raise Mismatch
        return found

    def show(self, value: tuple[int, ...]) -> list[int]:
        return list(value)


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
