"""The handler that lets each record leave as it came, in order and once."""

from typing import Any

from guardian.headers import (
    NOTIFICATION_ID,
    ORIGINAL,
    OURS,
    REQUEUED_FROM,
    REQUEUED_POSSIBLE_DUPLICATE,
    SOURCE_POSITION,
    UNIT_OF_WORK,
    mark_headers,
)
from resequencer.clock import Instant
from resequencer.event import Event
from resequencer.handler import Handled, Marks
from resequencer.notification import Notification, notification_id
from resequencer.record import Headers

PAYMENTS, PASS_THROUGH = "payments", "pass-through"
"""The handlers that come with the service."""

STATUS = "passed-through"
"""What such records are counted under."""


class PassThrough:
    """Key, value, headers and timestamp leave as they came, with our headers behind; what requeueing has added does not."""

    def handle(self, envelope: Event, data: Any, marks: Marks, now: Instant) -> Handled:
        del data, now
        record, identifier = envelope.record, notification_id(envelope.unit, envelope.event_id, 0)
        unit = envelope.unit.encode()
        ours = (
            (NOTIFICATION_ID, identifier.encode()),
            *(() if record.key == unit else ((UNIT_OF_WORK, unit),)),
            (SOURCE_POSITION, str(record.origin).encode()),
            *mark_headers(marks.incomplete, is_late=marks.late, is_ordered=marks.ordered),
        )
        headers = (*own_headers(record.headers), *((f"{OURS}{name}", value) for name, value in ours))
        passed = Notification(
            identifier,
            envelope.unit,
            STATUS,
            record.value,
            headers,
            record.origin,
            key=record.key,
            prefix=OURS,
            timestamp=record.written_at,
        )
        return Handled((passed,))

    def with_lookups(self, enrichment: object) -> "PassThrough":
        """Return itself: it uses no lookups."""
        del enrichment
        return self


def own_headers(headers: Headers) -> Headers:
    """Return the headers that a record came with, as they leave."""
    return tuple(
        (f"{ORIGINAL}{name.removeprefix(OURS)}" if name.startswith(OURS) else name, value)
        for name, value in headers
        if name not in (REQUEUED_FROM, REQUEUED_POSSIBLE_DUPLICATE)
    )
