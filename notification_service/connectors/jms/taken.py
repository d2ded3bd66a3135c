"""The messages of a partition that were taken and whose acknowledgement is not confirmed. Pure.

The storage keeps the digests of their ids with the units. After a crash they come again: one whose digest is in that list has
been handled, and is accepted and dropped. A digest that stands there twice drops two messages: two messages may have the same id.
"""

from base64 import b64decode, b64encode
from collections import Counter, deque
from collections.abc import Collection
from typing import NamedTuple

from guardian.ports import TransportRefused
from notification_service.connectors.jms.messages import DIGEST_BYTES


class Taken(NamedTuple):
    """A message that was given to the worker under an offset. `number` names it on its link."""

    offset: int
    number: int
    digest: bytes


class TakenMessages:
    """The state of a partition after a seek. `most` bounds the digests of an earlier owner: its oldest are forgotten first."""

    def __init__(self, partition: str, state: str, most: int) -> None:
        self._earlier = deque(_decode(partition, state), maxlen=most)
        self._awaited = Counter(self._earlier)
        self._dropped: dict[int, bytes] = {}
        self._taken: deque[Taken] = deque()

    @property
    def dropped(self) -> Collection[int]:
        """The numbers of messages that came again, and are to be accepted."""
        return self._dropped.keys()

    @property
    def has_earlier(self) -> bool:
        """Whether messages of an earlier owner may still come."""
        return bool(self._earlier)

    def drop_known(self, number: int, digest: bytes) -> bool:
        """Return whether an earlier owner has handled this message. If so, it is among `dropped` from now on."""
        if not self._awaited[digest]:
            return False
        self._awaited[digest] -= 1
        self._dropped[number] = digest
        return True

    def take(self, taken: Taken) -> None:
        self._taken.append(taken)

    def below(self, offset: int) -> list[int]:
        """Return the numbers of the messages that were taken below the offset."""
        return [each.number for each in self._taken if each.offset < offset]

    def note_accepted(self, numbers: Collection[int]) -> None:
        """Forget messages that the broker has accepted for certain."""
        gone = set(numbers)
        for each in gone & self._dropped.keys():
            self._earlier.remove(self._dropped.pop(each))
        self._taken = deque(each for each in self._taken if each.number not in gone)

    def forget_earlier(self) -> None:
        """Forget the messages of an earlier owner that did not come: they were accepted."""
        came = Counter(self._dropped.values())
        self._earlier = deque(came.elements(), maxlen=self._earlier.maxlen)
        self._awaited = Counter()

    def state(self) -> str:
        """Return all digests, for `Polled.source_states`."""
        return b64encode(b"".join([*self._earlier, *(each.digest for each in self._taken)])).decode()


def _decode(partition: str, state: str) -> list[bytes]:
    try:
        packed = b64decode(state, validate=True)
    except ValueError:
        packed = b"?"
    if len(packed) % DIGEST_BYTES:
        problem = "the storage's list of its messages cannot be read: another kind of source has written it. Restore the storage"
        raise TransportRefused(partition, problem)
    return [packed[at : at + DIGEST_BYTES] for at in range(0, len(packed), DIGEST_BYTES)]
