"""What waits beyond its deadline though somebody was at work: a release of which every notification is gone looks like this."""

from collections.abc import Iterable, Iterator, Mapping

from pipeline.audit.finding import Deviation
from pipeline.audit.judging import FINDING, Told
from pipeline.audit.rows import NOTIFICATION, Row, read_notification
from pipeline.audit.rules import AuditSettings
from pipeline.audit.timing import Made, Timing, bucket_size


def made_of(rows: Iterable[Row], lengths: Mapping[int, int]) -> Iterator[Made]:
    """What the notifications among the rows tell about time."""
    for row in rows:
        if row.kind != NOTIFICATION:
            continue
        seen = read_notification(row.payload)
        if seen.position is not None and seen.created_at is not None and row.partition in lengths:
            bucket = seen.offset // bucket_size(lengths[row.partition])
            yield Made(row.partition, bucket, seen.created_at, seen.created_at)


def overdue(waiting: Iterable[Told], timing: Timing, lengths: Mapping[int, int], settings: AuditSettings) -> Iterator[Told]:
    """Only of partitions that were read to their end: what waits for a backlog is not overdue."""
    bound_ms = settings.resequencer.deadline_ms + settings.grace_ms
    for each in waiting:
        assert each.partition is not None
        assert each.offset is not None
        if settings.settled.get(each.partition, 0) < lengths.get(each.partition, 0):
            continue
        waited_ms = timing.find_waited_ms(each.partition, each.offset)
        if waited_ms is not None and waited_ms > bound_ms:
            what = f"it waits for {each.what} for {waited_ms / 1_000:,.0f} s at least, and nothing says that it was released"
            yield Told(FINDING, each.unit, each.partition, each.offset, Deviation.OVERDUE.value, what)
