"""What leaves a stage: a record on its way to the next retry topic, or a dead letter. Pure."""

from guardian.headers import dead_letter_headers, moved_headers, own_headers
from guardian.ports import Channel, OutputRecord
from notification_service.delivery.direct.core.open_record import OpenRecord
from resequencer.clock import Instant
from resequencer.dead_letter import DeadLetterReason


def moved(opened: OpenRecord, delay_ms: int, error: str, now: Instant) -> OutputRecord:
    """Return the record for the next retry topic, from which it is delivered after `delay_ms`."""
    way = opened.way._replace(attempts=opened.way.attempts + opened.attempts)
    headers = moved_headers(opened.headers, way, opened.notification_id, delay_ms, error, now)
    return OutputRecord(opened.offset + 1, Channel.NOTIFICATIONS, opened.record.key, headers, opened.value)


def dead_letter(opened: OpenRecord, reason: DeadLetterReason, error: str, now: Instant) -> OutputRecord:
    """Return the dead letter: the record as it was in the source, with the reason. Its position is that in the source."""
    own = own_headers(opened.headers, opened.notification_id)
    why = dead_letter_headers(reason, error, str(opened.way.origin).encode(), now, opened.record.cut)
    return OutputRecord(opened.offset + 1, Channel.DEAD_LETTERS, opened.record.key, (*own, *why), opened.value)
