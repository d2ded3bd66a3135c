"""What stands in a committed offset's metadata: which topic the offset counts in, then the guardian's own text.

    resequencer/1 iYfkEOkLQ5W2DPKv0Y3mCA 4 ["b5c1…",17,42]

The format, the topic's id (base 64), how many partitions the topic had, the text. Whatever has another form was written by
another program.
"""

import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from uuid import UUID

import msgspec

from connectors.port import TransportRefused

MOST_CHARACTERS = 4096
"""What brokers take by default (`offset.metadata.max.bytes`, which counts characters). At most 64 of them are ours."""

_FORMAT = 1
_FORM = re.compile(r"resequencer/([1-9][0-9]{0,5}) ([A-Za-z0-9_-]{22}) ([1-9][0-9]{0,8}) (.*)", re.ASCII | re.DOTALL)
_ANY_FORMAT = re.compile(r"resequencer/([1-9][0-9]{0,5}) ", re.ASCII)


class OffsetMetadata(msgspec.Struct, frozen=True):
    """`partitions` is how many the topic had when this was written, `text` the guardian's."""

    topic_id: UUID
    partitions: int
    text: str

    def encode(self, what: str) -> str:
        """As it is committed. `what` names the partition in an error.

        Raises:
            TransportRefused: It is longer than brokers take; nothing was sent.
        """
        topic_id = urlsafe_b64encode(self.topic_id.bytes).decode().rstrip("=")
        encoded = f"resequencer/{_FORMAT} {topic_id} {self.partitions} {self.text}"
        length = len(encoded.encode("utf-16-le", "surrogatepass")) // 2  # As Java counts.
        if length > MOST_CHARACTERS:
            problem = f"the metadata of its position has {length} characters, brokers take {MOST_CHARACTERS}"
            raise TransportRefused(what, f"{problem}. This is a defect of the service: report it")
        return encoded


def find_metadata(encoded: str | None, what: str) -> OffsetMetadata | None:
    """What we wrote, None for what somebody else did.

    Raises:
        TransportRefused: A newer version of the service wrote it.
    """
    encoded = encoded or ""
    newer = _ANY_FORMAT.match(encoded)
    if newer and int(newer[1]) > _FORMAT:
        raise TransportRefused(what, f"its position has format {newer[1]}; start the newer version that wrote it")
    match = _FORM.fullmatch(encoded)
    if match is None:
        return None
    topic_id = UUID(bytes=urlsafe_b64decode(match[2] + "=="))
    return OffsetMetadata(topic_id, int(match[3]), match[4])
