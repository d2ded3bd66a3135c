"""Finds how far the input of a partition may be archived: no record of it waits, and all its output is sent."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

from guardian.ports import Position
from guardian.takeover import find_metadata
from notification_service.configuration.configuration import Configuration
from notification_service.configuration.sections import StorageType
from notification_service.connectors.dead_letters.actions import Requeueing
from notification_service.connectors.files.dead_letter_actions import ActionsFile
from notification_service.connectors.files.operations import SystemFiles
from notification_service.connectors.files.positions import PositionsFile
from resequencer.record import Partition
from storage.embedded.progress import Progress, find_progress

_LONGEST_WAIT_MS = 5_000
_LOOK_MS = 100


class Limit(NamedTuple):
    """The offset below which a partition may be archived; `because` is the reason why the next record stays."""

    offset: int
    because: str


class ArchiveLimit:
    """Finds limits from the storage and the transport's files; the service may be running. `pause` sleeps for milliseconds.

    A lost storage is healed by reading the input again, so everything that waits in it must stay in the input. A record may be
    archived if it was handled and its notifications are durable in the output.
    """

    def __init__(self, configuration: Configuration, pause: Callable[[int], None]) -> None:
        files = SystemFiles()
        output = configuration.notification.output_directory
        self._configuration = configuration
        self._positions = PositionsFile(output / "positions.json", files)
        self._actions = ActionsFile(output, files)
        self._pause = pause

    def find(self, partition: Partition) -> Limit:
        """Return the limit as of now. It never decreases, unless a storage lost data."""
        return min(self._limits(partition), key=lambda limit: limit.offset)

    def _limits(self, partition: Partition) -> Iterator[Limit]:
        if self._configuration.resequencer.storage_type is StorageType.EMBEDDED:
            yield from self._embedded_limits(partition)
        else:
            position = self._position(partition)
            yield Limit(position.offset if position else 0, "the rest is not handled yet")
        for action in self._actions.last().values():
            if isinstance(action, Requeueing) and action.partition == partition.number:
                yield Limit(action.beyond, f"the requeue of {action.number} was interrupted: run it again to finish it")

    def _embedded_limits(self, partition: Partition) -> Iterator[Limit]:
        # The storage is read first: its output is sent if a position that is read later covers it.
        progress = find_progress(self._configuration.storage.embedded_file, partition)
        if progress is None:
            yield Limit(0, "no record of it has been read yet")
            return
        position = self._position_once_left(partition, progress)
        if position is None:
            yield Limit(0, "the last output is not sent yet: start the service, which sends it")
            return
        yield Limit(progress.next_offset, "the rest is not read yet")
        yield Limit(position.offset, "the rest is not acknowledged yet")
        if progress.oldest_stashed is not None:
            yield Limit(progress.oldest_stashed, "the next record is stashed and waits")

    def _position_once_left(self, partition: Partition, progress: Progress) -> Position | None:
        for _ in range(_LONGEST_WAIT_MS // _LOOK_MS):
            position = self._position(partition)
            if position is None or _tells_of(position, progress.highest_number):
                return position
            self._pause(_LOOK_MS)
        return None

    def _position(self, partition: Partition) -> Position | None:
        positions = self._positions.read()
        return positions.partitions.get(partition) if positions else None


def _tells_of(position: Position, highest_number: int) -> bool:
    """Return whether the position says that all numbers up to this one were sent."""
    metadata = find_metadata(position.metadata)
    return metadata is not None and metadata.published >= highest_number
