"""What was let out, as far as an audit looks at it: small enough to hold all of a unit's in memory.

A notification that is expected is looked at in the same way as one that was found, so that the two can be compared.
"""

from functools import lru_cache
from hashlib import sha256

import msgspec

from domain.clock import Instant, instant_of
from domain.headers import (
    DEAD_LETTER_REASON,
    DEAD_LETTER_SOURCE_POSITION,
    DEAD_LETTER_VALUE_LENGTH,
    EVENT_NAME,
    INCOMPLETE,
    LATE,
    LOOKUPS_VERSION,
    NOTIFICATION_ID,
    POSSIBLE_DUPLICATE,
    SOURCE_POSITION,
    texts_of,
)
from domain.notification import Notification
from domain.record import Headers, Origin

_encode = msgspec.msgpack.Encoder().encode
_CREATED, _STATUS = "CreDtTm", "TxSts"
_FRAMES = {
    (name, kind): frame
    for name in (_CREATED, _STATUS)
    for kind, frame in (("json", (b'"%b":"' % name.encode(), b'"')), ("xml", (b"<%b>" % name.encode(), b"<")))
}


class Position(msgspec.Struct, frozen=True, array_like=True):
    """Where a record lies, as `source-position` says it."""

    topic: str
    partition: int
    offset: int


class ObservedNotification(msgspec.Struct, frozen=True, array_like=True):
    """`place` orders what left; `position` is None where the header names none. `digest` is that of the value without its
    `CreDtTm`, which is `created_at`; `status` is None where the value has none. `version` is that of the lookups, `headers` are
    those that no other field holds. Two with one `likeness` have the same content, position, headers and marks.
    """

    place: int
    notification_id: str
    position: Position | None
    incomplete: str | None
    is_late: bool
    is_possible_duplicate: bool
    status: str | None
    created_at: Instant | None
    digest: bytes
    version: str | None
    headers: tuple[tuple[str, str], ...]
    likeness: bytes

    @property
    def marks(self) -> tuple[str | None, bool]:
        return self.incomplete, self.is_late

    def is_like(self, other: "ObservedNotification") -> bool:
        """But for marks, and for when it was made and where it lies."""
        return (
            self.digest == other.digest
            and self.position == other.position
            and self.headers == other.headers
            and self.status == other.status
            and self.version == other.version
        )

    @property
    def offset(self) -> int:
        """-1 where no position is named."""
        return -1 if self.position is None else self.position.offset

    @property
    def named(self) -> str:
        """For people."""
        event = next((value for name, value in self.headers if name == EVENT_NAME), "?")
        return f"{self.notification_id} ({event})"


class ObservedDeadLetter(msgspec.Struct, frozen=True, array_like=True):
    """A dead letter. `digest` is that of its value, None where that was cut."""

    place: int
    reason: str
    is_possible_duplicate: bool
    digest: bytes | None


def observe(headers: Headers, value: bytes, place: int) -> ObservedNotification | None:
    """None where there is no notification id."""
    texts = texts_of(headers)
    identifier = texts.pop(NOTIFICATION_ID, None)
    if identifier is None:
        return None
    created, status = _find_text(value, _CREATED), _find_text(value, _STATUS)
    digest = _digest_without(value, created)
    # What is popped is no part of the headers that are left.
    return ObservedNotification(
        place,
        identifier,
        find_position(texts.pop(SOURCE_POSITION, None)),
        texts.pop(INCOMPLETE, None),
        texts.pop(LATE, None) is not None,
        texts.pop(POSSIBLE_DUPLICATE, None) is not None,
        None if status is None else value[status].decode(errors="replace"),
        None if created is None else _find_instant(value[created]),
        digest,
        texts.pop(LOOKUPS_VERSION, None),
        tuple(sorted(texts.items())),
        _likeness(headers, digest),
    )


def likeness_of(notification: Notification) -> bytes:
    """That of one that was found, if this is what it has to be: cheaper than to look at it whole."""
    return _likeness(notification.headers, _digest_without(notification.value, _find_text(notification.value, _CREATED)))


def _likeness(headers: Headers, digest: bytes) -> bytes:
    return digest_of(_encode([each for each in headers if each[0] != POSSIBLE_DUPLICATE]) + digest)


def _digest_without(value: bytes, created: slice | None) -> bytes:
    return digest_of(value if created is None else value[: created.start] + value[created.stop :])


def _find_text(value: bytes, name: str) -> slice | None:
    """Where the text of the first element of this name is. The first `CreDtTm` is the report's own: `OrgnlCreDtTm` is another."""
    opening, closing = _FRAMES[name, "xml" if value.startswith(b"<") else "json"]
    start = value.find(opening)
    if start < 0:
        return None
    start += len(opening)
    end = value.find(closing, start)
    return slice(start, len(value) if end < 0 else end)


def observe_expected(notification: Notification) -> ObservedNotification:
    """What the unit's own code makes, which has an id."""
    seen = observe(notification.headers, notification.value, -1)
    assert seen is not None, "a notification has an id"
    return seen


def observe_dead_letter(headers: Headers, value: bytes, place: int) -> tuple[Position | None, ObservedDeadLetter]:
    """A dead letter and the position of its record."""
    texts = texts_of(headers)
    is_cut = DEAD_LETTER_VALUE_LENGTH in texts
    letter = ObservedDeadLetter(
        place, texts.get(DEAD_LETTER_REASON, ""), POSSIBLE_DUPLICATE in texts, None if is_cut else digest_of(value)
    )
    return find_position(texts.get(DEAD_LETTER_SOURCE_POSITION)), letter


def find_position(text: str | None) -> Position | None:
    found = Origin.find(text or "")
    return Position(*found.partition, found.offset) if found else None


def digest_of(value: bytes) -> bytes:
    return sha256(value).digest()[:16]


@lru_cache(1_024)
def _find_instant(text: bytes) -> Instant | None:
    try:
        return instant_of(text.decode())
    except ValueError:
        return None
