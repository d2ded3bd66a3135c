"""Facts: each status that a payment has reached, notified or not."""

import msgspec

from resequencer.record import Headers, Origin

_HEADERS_BYTES = 512


class Fact(msgspec.Struct, frozen=True, gc=False):
    """One record of the topic of facts. `key` is the group of the payment, or its unit of work if it has no group."""

    key: str
    value: bytes
    headers: Headers
    origin: Origin

    @property
    def size(self) -> int:
        """About its size in bytes until it is published, with a fixed size for the headers, which are short."""
        return len(self.value) + _HEADERS_BYTES
