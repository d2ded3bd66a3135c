"""Makes messages of MQTT 5 from records. Pure.

The value is the payload, the key the correlation data, and each header a user property. Names and values of properties are
texts of UTF-8. What MQTT or a broker forbids in them is replaced, and what is longer than a text may be is cut.
"""

import re
from typing import NamedTuple

from guardian.headers import texts_of
from resequencer.record import Headers

_LONGEST = 65_535
"""The most bytes of a text or of correlation data."""

_FORBIDDEN = re.compile(
    "[\x00-\x1f\x7f-\x9f\ud800-\udfff\ufdd0-\ufdef\ufeff\ufffe\uffff"
    + "".join(f"{chr(plane << 16 | 0xFFFE)}{chr(plane << 16 | 0xFFFF)}" for plane in range(1, 17))
    + "]"
)
"""Characters for which MQTT lets a receiver close the connection, and for which mosquitto or paho does: control characters,
surrogates, what is no character, and the mark of the order of bytes.
"""

_REPLACEMENT = "\ufffd"
_MAX_OF_LENGTH = 4
"""The bytes of a length of variable size."""


class Outgoing(NamedTuple):
    """A message to send."""

    topic: str
    payload: bytes
    correlation: bytes | None
    properties: tuple[tuple[str, str], ...]

    @property
    def packet_bytes(self) -> int:
        """The most bytes that its packet may have."""
        properties = sum(5 + len(name.encode()) + len(value.encode()) for name, value in self.properties)
        correlation = 0 if self.correlation is None else 3 + len(self.correlation)
        begin = 1 + _MAX_OF_LENGTH + 2 + len(self.topic.encode()) + 2 + _MAX_OF_LENGTH
        return begin + properties + correlation + len(self.payload)


def outgoing(topic: str, key: bytes | None, headers: Headers, value: bytes | None) -> Outgoing:
    """Return the message for a record. Of several headers with one name the last one counts. A null value is an empty payload."""
    properties = tuple((_text(name), _text(value)) for name, value in texts_of(headers).items())
    return Outgoing(topic, value or b"", None if key is None else key[:_LONGEST], properties)


def _text(text: str) -> str:
    allowed = _FORBIDDEN.sub(_REPLACEMENT, text)
    return allowed.encode()[:_LONGEST].decode(errors="ignore")
