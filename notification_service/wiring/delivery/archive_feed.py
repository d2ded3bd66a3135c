"""Notifications from the archive of the topics."""

from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from notification_service.delivery.feeds.port import make_item, select_items
from notification_service.delivery.ledger.intake import Portion
from notification_service.delivery.settings import Select
from notification_service.jobs.topic_archive.records_in_order import OrderedRecord, records_in_order
from resequencer.clock import Instant
from resequencer.record import Origin, Partition


class ArchiveSpan(msgspec.Struct, frozen=True):
    """What a job delivers of an archive: by partition up to an offset, with timestamps from `since` to `until` (exclusive).

    None is no limit. `location` is the path of the archive.
    """

    location: str
    topic: str
    ends: Mapping[int, int]
    since: Instant | None = None
    until: Instant | None = None

    def holds(self, timestamp: Instant) -> bool:
        return (self.since is None or timestamp >= self.since) and (self.until is None or timestamp < self.until)


class ArchiveFeed:
    """Reads a span of an archive. A part of the feed is a partition."""

    def __init__(self, span: ArchiveSpan, select: Select) -> None:
        self._span, self._select = span, select
        self._pieces: Iterator[list[OrderedRecord]] | None = None
        self._at: Mapping[str, int] | None = None

    def read(self, positions: Mapping[str, int], most: int) -> Portion:
        """As `Feed.read`.

        Raises:
            ArchiveRefused, ArchiveUnavailable: The archive cannot be read.
        """
        try:
            return self._read(positions, most)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        self._pieces = self._at = None

    def _read(self, positions: Mapping[str, int], most: int) -> Portion:
        if self._pieces is None or self._at != positions:
            starts = {int(part): at for part, at in positions.items()}
            span = self._span
            self._pieces = records_in_order(Path(span.location), span.topic, starts, span.ends, most)
        piece = next(self._pieces, None)
        if piece is None:
            self.close()
            return Portion([], {}, is_end=True, seals=True)
        after = {str(piece[0].partition): piece[-1].offset + 1}
        self._at = {**positions, **after}
        within = [each for each in piece if self._span.holds(each.timestamp)]
        items = [make_item(each.key, each.value, each.headers, str(self._origin(each))) for each in within]
        selected = select_items(items, self._select)
        return Portion(selected, after, len(items) - len(selected))

    def _origin(self, record: OrderedRecord) -> Origin:
        return Origin(Partition(self._span.topic, record.partition), record.offset)
