"""What is sent of an envelope: notifications, and facts, which are counted by groups."""

import msgspec
from msgspec import UNSET, UnsetType

from resequencer.record import Headers, Origin, short_digest, size_of_headers

_HEADERS_BYTES = 1_024


class Notification(msgspec.Struct, frozen=True, gc=False):
    """A record to publish.

    `status` is what it is counted under. `key` UNSET is the unit of work. `is_object` is set if the service itself encoded the
    value as a JSON object on one line. `prefix` is that of our headers in it, which is not empty if the record's own headers
    leave, too: they may have the same names.
    """

    notification_id: str
    unit: str
    status: str
    value: bytes
    headers: Headers
    origin: Origin
    is_object: bool = False
    key: bytes | UnsetType | None = UNSET
    prefix: str = ""

    @property
    def size(self) -> int:
        """About its size in bytes until it is published, with a fixed size for our own headers, which are short."""
        if self.prefix:
            return len(self.value) + size_of_headers(self.headers) + _HEADERS_BYTES
        return len(self.value) + _HEADERS_BYTES


def notification_id(unit: str, event_id: str, index: int) -> str:
    """Return the id of notification `index` (from 0) of an envelope: 32 characters, A-Z and 2-7.

    The same envelope always yields the same id (docs/contract.md, section 5). It is also the `GrpHdr/MsgId`, which ISO 20022
    limits to 35 characters.
    """
    return short_digest(f"{unit}\0{event_id}\0{index}".encode())


def group_report_id(group: str, number: int) -> str:
    """Return the id of the report `number` (from 1) on a group: also 32 characters and the `GrpHdr/MsgId`, always the same."""
    return short_digest(f"{group}\0{number}".encode())


_FACT_HEADERS_BYTES = 512


class Fact(msgspec.Struct, frozen=True, gc=False):
    """One record of the topic of facts. `key` is the group, or the unit of work if that has no group."""

    key: str
    value: bytes
    headers: Headers
    origin: Origin

    @property
    def size(self) -> int:
        """About its size in bytes until it is published, with a fixed size for the headers, which are short."""
        return len(self.value) + _FACT_HEADERS_BYTES
