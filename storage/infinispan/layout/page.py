"""Pages: several whole units in one value, written once and read by one request. Pure."""

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from threading import RLock

import msgspec

from storage.infinispan.layout.records import UnitRecord
from storage.infinispan.layout.value_framing import undecodable

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(tuple[UnitRecord, ...]).decode


class Page:
    """The units of one page by slots, which count from 0. `size` is about its size in bytes."""

    def __init__(self, records: Sequence[UnitRecord], size: int) -> None:
        self.records = records
        self.size = size
        self._slots: dict[str, int] | None = None

    def find_slot(self, unit: str) -> int | None:
        if self._slots is None:
            self._slots = {record.unit: slot for slot, record in enumerate(self.records)}
        return self._slots.get(unit)


def packed(records: Iterable[UnitRecord], most_bytes: int) -> Iterator[Page]:
    """Pack the records in order into pages of up to `most_bytes`. A larger record gets a page of its own and is not split."""
    page: list[UnitRecord] = []
    size = 0
    for record in records:
        more = record.size
        if page and size + more > most_bytes:
            yield Page(page, size)
            page, size = [], 0
        page.append(record)
        size += more
    if page:
        yield Page(page, size)


def encode_page(page: Page) -> bytes:
    return _encode(page.records)


def decode_page(name: str, payload: bytes) -> Page:
    """Decode a page. Raises StorageRefused if the payload is not one."""
    try:
        return Page(_decode(payload), len(payload))
    except msgspec.DecodeError as error:
        raise undecodable(name, error) from error


class PageMemory:
    """A cache of the pages that were used last, up to `most_bytes`. Pages never change, so the cache is never stale.

    Used from several threads.
    """

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._pages: OrderedDict[str, tuple[Page, int]] = OrderedDict()
        self._bytes = 0
        self._lock = RLock()

    def find(self, name: str) -> Page | None:
        with self._lock:
            if (found := self._pages.get(name)) is None:
                return None
            self._pages.move_to_end(name)
            return found[0]

    def keep(self, name: str, page: Page) -> None:
        with self._lock:
            self.drop(name)
            self._pages[name] = (page, page.size)
            self._bytes += page.size
            while self._bytes > self._most_bytes:
                _, (_, size) = self._pages.popitem(last=False)
                self._bytes -= size

    def drop(self, name: str) -> None:
        with self._lock:
            if (known := self._pages.pop(name, None)) is not None:
                self._bytes -= known[1]
