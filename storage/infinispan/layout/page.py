"""Pages: several whole units in one value, written once and read by one request. Pure."""

from collections.abc import Iterable, Iterator, Sequence

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
