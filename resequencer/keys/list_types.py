"""The value types of configuration keys that take a list."""

import ipaddress
import re
from typing import Any, ClassVar

import msgspec

from resequencer.keys.value_types import Duration, Mismatch, Url, Whole, unquoted

MAX_ITEMS = 1_000


class _List:
    """A list whose items `read_item` reads. `max_items` None: it may have any number of them."""

    __slots__ = ()
    max_items: ClassVar[int | None] = None

    def read(self, value: Any) -> tuple[Any, ...]:
        if not isinstance(value, list) or (self.max_items is not None and len(value) > self.max_items):
            raise Mismatch
        return tuple(map(self.read_item, value))

    def read_item(self, item: Any) -> Any:
        raise NotImplementedError

    def show(self, value: tuple[Any, ...]) -> list[Any]:
        return list(value)


class DifferentItems(_List):
    """A list without repetitions."""

    __slots__ = ()

    def read(self, value: Any) -> tuple[Any, ...]:
        found = super().read(value)
        if len(set(found)) < len(found):
            raise Mismatch
        return found


class Names(DifferentItems, msgspec.Struct, frozen=True):
    """A list of different names. Apostrophes are no quotes in HOCON; those of the documented examples are removed."""

    expects: str = 'a list of different names, such as ["BusinessData"]'

    def read_item(self, item: Any) -> str:
        name = unquoted(item) if isinstance(item, str) else ""
        if not name.strip() or "'" in name or re.search(r"[\x00-\x1f\x7f]", name):
            raise Mismatch
        return name


class Choices(DifferentItems, msgspec.Struct, frozen=True):
    """A list of different names, each of them one of these."""

    names: tuple[str, ...]

    @property
    def expects(self) -> str:
        return f"a list of different ones of {', '.join(self.names)}"

    def read_item(self, item: Any) -> Any:
        if item not in self.names:
            raise Mismatch
        return item


class Wholes(DifferentItems, msgspec.Struct, frozen=True):
    """A list of different whole numbers. The text `empty` describes what an empty list means."""

    minimum: int
    maximum: int
    empty: str
    max_items = MAX_ITEMS

    @property
    def expects(self) -> str:
        return f"a list of different whole numbers from {self.minimum} to {self.maximum}, such as [0, 1]; empty: {self.empty}"

    def read_item(self, item: Any) -> Any:
        return Whole(self.minimum, self.maximum).read(item)


class Statuses(DifferentItems, msgspec.Struct, frozen=True):
    """A list of different HTTP statuses."""

    expects: str = "a list of HTTP statuses from 200 to 599, such as [404, 410]"

    def read_item(self, item: Any) -> Any:
        return Whole(200, 599).read(item)


class Durations(_List, msgspec.Struct, frozen=True):
    """A list of durations, each as `Duration` reads them."""

    minimum: str
    maximum: str
    empty: str
    max_items = 100

    @property
    def expects(self) -> str:
        each = f"a list of durations with their units from {self.minimum} to {self.maximum}"
        return f"{each}, such as [1s, 10s]; empty: {self.empty}"

    def read_item(self, item: Any) -> Any:
        return Duration(self.minimum, self.maximum).read(item)

    def show(self, value: tuple[int, ...]) -> list[Any]:
        return list(map(Duration(self.minimum, self.maximum).show, value))


class Urls(_List, msgspec.Struct, frozen=True):
    """A list of URLs with one of the schemes. A password in a URL is refused, because the list is shown."""

    schemes: tuple[str, ...]

    @property
    def expects(self) -> str:
        return "a list of URLs without a login that begin with " + " or ".join(f"{each}://" for each in self.schemes)

    def read_item(self, item: Any) -> str:
        if isinstance(item, str) and "@" in item:
            raise Mismatch
        return str(Url(self.schemes).read(item)).rstrip("/")


class Networks(_List, msgspec.Struct, frozen=True):
    """A list of IP addresses and networks, such as 10.0.0.0/8."""

    expects: str = 'a list of IP addresses or networks, such as ["127.0.0.1", "10.0.0.0/8"]'

    def read_item(self, item: Any) -> str:
        if not isinstance(item, str):
            raise Mismatch
        try:
            return str(ipaddress.ip_network(item))
        except ValueError as error:
            raise Mismatch from error
