"""Published notifications and dead letters, reduced to what an audit compares; all of one unit fit into memory.

An expected notification is reduced in the same way, so that the two can be compared.
"""

from collections.abc import Mapping
from functools import lru_cache
from hashlib import sha256

import msgspec
from msgspec import UNSET

from guardian.headers import (
    DEAD_LETTER_REASON,
    DEAD_LETTER_SOURCE_POSITION,
    DEAD_LETTER_VALUE_LENGTH,
    EVENT_NAME,
    INCOMPLETE,
    LATE,
    LOOKUPS_VERSION,
    NOTIFICATION_ID,
    OURS,
    POSSIBLE_DUPLICATE,
    RELEASED_BY,
    SOURCE_POSITION,
    TRACEPARENT,
    TRACESTATE,
    own_texts,
    texts_of,
)
from resequencer.clock import Instant, instant_of
from resequencer.notification import Notification
from resequencer.record import Headers, Origin

_encode = msgspec.msgpack.Encoder().encode
_CREATED, _STATUS = "CreDtTm", "TxSts"
_FRAMES = {
    (name, kind): frame
    for name in (_CREATED, _STATUS)
    for kind, frame in (("json", (b'"%b":"' % name.encode(), b'"')), ("xml", (b"<%b>" % name.encode(), b"<")))
}


class ObservedNotification(msgspec.Struct, frozen=True, array_like=True):
    """A published notification.

    `place` gives the order of publishing. `position` is None without the header, `status` None if the value has none. `digest` is
    that of the value without its `CreDtTm`, which is `created_at`. `version` is that of the lookups. `headers` are those that no
    other field holds. Two notifications with the same `likeness` have the same content, position, headers and marks.

    With `is_passed` it is a record that passed through: `digest` is that of its key and value, and `headers` are all, in order,
    with the values as they were in Latin-1.
    """

    place: int
    notification_id: str
    position: Origin | None
    incomplete: str | None
    is_late: bool
    is_possible_duplicate: bool
    status: str | None
    created_at: Instant | None
    digest: bytes
    version: str | None
    headers: tuple[tuple[str, str], ...]
    likeness: bytes
    is_passed: bool = False

    @property
    def marks(self) -> tuple[str | None, bool]:
        return self.incomplete, self.is_late

    @property
    def is_ordered(self) -> bool:
        """Whether it says that an operator's order released it."""
        wanted = f"{OURS}{RELEASED_BY}" if self.is_passed else RELEASED_BY
        return any(name == wanted for name, _ in self.headers)

    def is_like(self, other: "ObservedNotification") -> bool:
        """Return whether both are equal except for marks, creation time and place."""
        return (
            self.digest == other.digest
            and self.position == other.position
            and self.headers == other.headers
            and self.status == other.status
            and self.version == other.version
        )

    @property
    def offset(self) -> int:
        """The offset of the position; -1 without a position."""
        return -1 if self.position is None else self.position.offset

    @property
    def named(self) -> str:
        """A name for people: the notification id and the event; of a record that passed through the id alone."""
        if self.is_passed:
            return self.notification_id
        event = next((value for name, value in self.headers if name == EVENT_NAME), "?")
        return f"{self.notification_id} ({event})"


class ObservedDeadLetter(msgspec.Struct, frozen=True, array_like=True):
    """A published dead letter. `digest` is that of its value; None if the value was cut."""

    place: int
    reason: str
    is_possible_duplicate: bool
    digest: bytes | None


_TRACE = frozenset({TRACEPARENT, TRACESTATE})
"""They are for tracing only, so they are not compared."""
_NOT_COMPARED = frozenset({POSSIBLE_DUPLICATE}) | _TRACE


def observe(headers: Headers, value: bytes, place: int) -> ObservedNotification | None:
    """Reduce a published notification; None without a notification id."""
    texts = texts_of(headers)
    identifier = texts.pop(NOTIFICATION_ID, None)
    if identifier is None:
        return None
    for name in _TRACE:
        texts.pop(name, None)
    created, status = _find_text(value, _CREATED), _find_text(value, _STATUS)
    digest = _digest_without(value, created)
    # Each `pop` removes a header that has a field of its own; the remaining ones become `headers`.
    return ObservedNotification(
        place,
        identifier,
        Origin.find(texts.pop(SOURCE_POSITION, "")),
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


_OF_PASSED = frozenset(f"{OURS}{name}" for name in (NOTIFICATION_ID, SOURCE_POSITION, INCOMPLETE, LATE, POSSIBLE_DUPLICATE))
"""Our headers in a record that passed through that have fields of their own."""
_POSSIBLE_DUPLICATE = f"{OURS}{POSSIBLE_DUPLICATE}"


def observe_passed(
    key: bytes | None, headers: Headers, value: bytes | None, place: int, ours: Mapping[str, str]
) -> ObservedNotification | None:
    """Reduce a record that passed through; `ours` are our headers in it. None without a notification id."""
    if NOTIFICATION_ID not in ours:
        return None
    digest = digest_of(_encode((key, value)))
    return ObservedNotification(
        place,
        ours[NOTIFICATION_ID],
        Origin.find(ours.get(SOURCE_POSITION, "")),
        ours.get(INCOMPLETE),
        LATE in ours,
        POSSIBLE_DUPLICATE in ours,
        None,
        None,
        digest,
        None,
        tuple((name, text.decode("latin-1")) for name, text in headers if name not in _OF_PASSED),
        _likeness_of_passed(headers, digest),
        is_passed=True,
    )


def _likeness_of_passed(headers: Headers, digest: bytes) -> bytes:
    return digest_of(_encode([each for each in headers if each[0] != _POSSIBLE_DUPLICATE]) + digest)


def likeness_of(notification: Notification) -> bytes:
    """Return the likeness of a notification to be compared with an observed one; cheaper than `observe_expected`."""
    if notification.prefix:
        return _likeness_of_passed(notification.headers, digest_of(_encode((notification.key, notification.value))))
    value = notification.value or b""
    return _likeness(notification.headers, _digest_without(value, _find_text(value, _CREATED)))


def _likeness(headers: Headers, digest: bytes) -> bytes:
    return digest_of(_encode([each for each in headers if each[0] not in _NOT_COMPARED]) + digest)


def _digest_without(value: bytes, created: slice | None) -> bytes:
    return digest_of(value if created is None else value[: created.start] + value[created.stop :])


def _find_text(value: bytes, name: str) -> slice | None:
    """Return where the text of the first element of this name is.

    The first `CreDtTm` is the report's own; `OrgnlCreDtTm` is another element.
    """
    opening, closing = _FRAMES[name, "xml" if value.startswith(b"<") else "json"]
    start = value.find(opening)
    if start < 0:
        return None
    start += len(opening)
    end = value.find(closing, start)
    return slice(start, len(value) if end < 0 else end)


def observe_expected(notification: Notification) -> ObservedNotification:
    """Reduce a notification that the replayed unit made; such a notification always has an id."""
    if notification.prefix:
        assert notification.key is not UNSET, "a record leaves with its own key"
        ours = own_texts(notification.headers)
        seen = observe_passed(notification.key, notification.headers, notification.value, -1, ours)
    else:
        seen = observe(notification.headers, notification.value or b"", -1)
    assert seen is not None, "a notification has an id"
    return seen


def observe_dead_letter(headers: Headers, value: bytes, place: int) -> tuple[Origin | None, ObservedDeadLetter]:
    """Return the position of the dead letter's record, and the dead letter."""
    texts = texts_of(headers)
    is_cut = DEAD_LETTER_VALUE_LENGTH in texts
    dead_letter = ObservedDeadLetter(
        place, texts.get(DEAD_LETTER_REASON, ""), POSSIBLE_DUPLICATE in texts, None if is_cut else digest_of(value)
    )
    return Origin.find(texts.get(DEAD_LETTER_SOURCE_POSITION, "")), dead_letter


def digest_of(value: bytes) -> bytes:
    return sha256(value).digest()[:16]


@lru_cache(1_024)
def _find_instant(text: bytes) -> Instant | None:
    try:
        return instant_of(text.decode())
    except ValueError:
        return None
