"""The metadata of a committed offset: the topic in which the offset counts, then the guardian's own text.

    resequencer/1 iYfkEOkLQ5W2DPKv0Y3mCA 4 ["b5c1…",17,42]

The format's number, the topic's id (base 64), the topic's number of partitions, the text. Metadata of another form was written
by another program.
"""

import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Collection
from typing import NamedTuple
from uuid import UUID

import msgspec

from guardian.ports import TransportRefused
from resequencer.record import Partition

MAX_CHARACTERS = 4096
"""The brokers' default limit (`offset.metadata.max.bytes`, which counts characters). The parts before the text take up to 64."""

_FORMAT = 1
_FORM = re.compile(r"resequencer/([1-9][0-9]{0,5}) ([A-Za-z0-9_-]{22}) ([1-9][0-9]{0,8}) (.*)", re.ASCII | re.DOTALL)
_ANY_FORMAT = re.compile(r"resequencer/([1-9][0-9]{0,5}) ", re.ASCII)


class OffsetMetadata(msgspec.Struct, frozen=True):
    """`partitions` is the topic's number of partitions when this was written; `text` belongs to the guardian."""

    topic_id: UUID
    partitions: int
    text: str

    def encode(self, what: str) -> str:
        """Return the text to commit. `what` names the partition in an error.

        Raises:
            TransportRefused: The text is longer than the brokers' limit; nothing was sent.
        """
        topic_id = urlsafe_b64encode(self.topic_id.bytes).decode().rstrip("=")
        encoded = f"resequencer/{_FORMAT} {topic_id} {self.partitions} {self.text}"
        length = len(encoded.encode("utf-16-le", "surrogatepass")) // 2  # As Java counts.
        if length > MAX_CHARACTERS:
            problem = f"the metadata of its position has {length} characters, but brokers accept {MAX_CHARACTERS}"
            raise TransportRefused(what, f"{problem}. This is a defect of the service: report it")
        return encoded


def find_metadata(encoded: str | None, what: str) -> OffsetMetadata | None:
    """Return the metadata if the service wrote it; None if another program did.

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


class _Problem(NamedTuple):
    text: str
    next_try_at: float


class PausedPartitions:
    """Tries a paused partition again after `retry_seconds`: it is readable after a repair, or with another leader."""

    def __init__(self, retry_seconds: float) -> None:
        self._retry_seconds = retry_seconds
        self._problems: dict[Partition, _Problem] = {}

    @property
    def notes(self) -> tuple[str, ...]:
        """One sentence for each paused partition."""
        return tuple(each.text for each in self._problems.values())

    def is_readable(self, partition: Partition, now: float) -> bool:
        """Return whether the partition is not paused, or due for another try."""
        problem = self._problems.get(partition)
        return problem is None or now >= problem.next_try_at

    def note(self, partition: Partition, text: str, now: float) -> bool:
        """Pause the partition for the reason in `text`; return whether the reason is new."""
        before = self._problems.get(partition)
        self._problems[partition] = _Problem(text, now + self._retry_seconds)
        return before is None or before.text != text

    def keep(self, partitions: Collection[Partition]) -> None:
        """Forget the partitions that are not among these: they were read on, or are not read by this worker."""
        self._problems = {each: problem for each, problem in self._problems.items() if each in partitions}
