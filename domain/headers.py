"""The headers of records: the name of each, how it is written and how it is read (docs/contract.md, sections 4, 6 and 9).

All are UTF-8.

Of several headers of one name the last one counts, as for Kafka's own clients.
"""

from typing import Final

from domain.clock import Instant, instant_text
from domain.dead_letter import DeadLetterReason
from domain.record import Cut, Headers

SCHEMA_VERSION: Final = "schema-version"
"""Of the input: 1 or 2."""

NOTIFICATION_ID: Final = "notification-id"
ENVELOPE_ID: Final = "envelope-id"
SOURCE_POSITION: Final = "source-position"
"""`topic-partition@offset` of the record that caused the notification: the text of an `Origin`."""
EVENT_NAME: Final = "event-name"
PROCESS_FLOW_NAME: Final = "process-flow-name"
LOOKUPS_VERSION: Final = "lookups-version"
CHANNEL: Final = "channel"
LANGUAGE: Final = "language"

INCOMPLETE: Final = "incomplete"
"""Only on what was released without it: what was missing, comma-separated."""
LATE: Final = "late"
POSSIBLE_DUPLICATE: Final = "possible-duplicate"
MARKED: Final = b"true"
"""The value of `late` and `possible-duplicate`, which are there or not."""

DEAD_LETTER_REASON: Final = "dead-letter-reason"
DEAD_LETTER_ERROR: Final = "dead-letter-error"
DEAD_LETTER_SOURCE_POSITION: Final = "dead-letter-source-position"
DEAD_LETTER_AT: Final = "dead-letter-at"
DEAD_LETTER_VALUE_LENGTH: Final = "dead-letter-value-length"
DEAD_LETTER_VALUE_SHA256: Final = "dead-letter-value-sha256"
DEAD_LETTER_PREFIX: Final = "dead-letter-"
"""All of these begin so, and no header of a notification does."""

DEAD_LETTER_ACTION: Final = "dead-letter-action"
"""The only header of a note in a dead-letter topic that says what an operator did with a letter."""
REQUEUED_FROM: Final = "requeued-from"
"""The number of the dead letter that a requeued record was: what such a record is recognised by."""

_LONGEST_ERROR = 2_000
"""Characters. Foreign code may say as much as it likes, the payment's data included; some transports bound a header."""


def dead_letter_headers(reason: DeadLetterReason, error: str, position: bytes, at: Instant, cut: Cut | None = None) -> Headers:
    """What a dead letter has behind the headers that its record came with; `position` is the text of the record's origin."""
    return (
        (DEAD_LETTER_REASON, reason.value.encode()),
        (DEAD_LETTER_ERROR, error[:_LONGEST_ERROR].encode("utf-8", "replace")),
        (DEAD_LETTER_SOURCE_POSITION, position),
        (DEAD_LETTER_AT, instant_text(at).encode()),
        *(cut_headers(cut) if cut else ()),
    )


def cut_headers(cut: Cut) -> Headers:
    """What the value of a dead letter was before it was cut."""
    return (DEAD_LETTER_VALUE_LENGTH, str(cut.length).encode()), (DEAD_LETTER_VALUE_SHA256, cut.sha256.encode())


def mark_headers(incomplete: str | None, *, is_late: bool) -> Headers:
    """The marks that a notification is made with; `possible-duplicate` is added by what publishes."""
    missing: Headers = () if incomplete is None else ((INCOMPLETE, incomplete.encode()),)
    return (*missing, (LATE, MARKED)) if is_late else missing


def texts_of(headers: Headers) -> dict[str, str]:
    """The values as text, by name. What is not UTF-8 is replaced: another program may have written it."""
    return {name: value.decode(errors="replace") for name, value in headers}
