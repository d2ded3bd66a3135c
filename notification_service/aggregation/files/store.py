"""A store in files. Values and the offset of the commands are one transaction of SQLite; output follows as numbered lines."""

from collections.abc import Collection, Mapping
from pathlib import Path

from msgspec.structs import replace

from guardian.headers import MARKED, POSSIBLE_DUPLICATE
from guardian.pending_output import from_pending, to_pending
from guardian.ports import OutputRecord, PartitionOutput, Polled, Position, Transport
from notification_service.aggregation.core.processor import Values
from notification_service.aggregation.output import numbered
from notification_service.aggregation.port import Step
from notification_service.aggregation.values.file import Progress, ValuesFile
from resequencer.record import Partition
from resequencer.storage_port import Pending

_MARK = (POSSIBLE_DUPLICATE, MARKED)


class FileStore:
    """`transport` reads the commands and writes the output, `values_file` holds the values of all partitions.

    Output is in the values' transaction until it is written, so that a crash neither loses nor doubles it: each record has a
    number, and the transport knows which numbers it has written.
    """

    def __init__(self, transport: Transport, values_file: Path) -> None:
        self._transport = transport
        self._file = ValuesFile(values_file, is_copy=False)
        self._progress: dict[Partition, Progress] = {}
        self._published: dict[Partition, int] = {}
        self._repeats_to: dict[Partition, int] = {}

    @property
    def shares_values(self) -> bool:
        return True

    @property
    def notes(self) -> tuple[str, ...]:
        return self._transport.standing().notes

    def assignment(self) -> Collection[Partition]:
        return self._transport.assignment()

    def take_over(self, partition: Partition) -> int:
        """As the port describes. Without its values the commands are read from their beginning. Values that were set back go on
        from where they are. What may have been written before is marked as a possible duplicate.
        """
        position, progress = self._transport.position(partition), self._file.progress(partition.number)
        written = int(position.metadata or 0) if position is not None else 0
        left = 0 if position is None else max(written, position.highest, *position.beyond)
        if progress is None or progress.number < left:
            progress = self._go_on_behind(partition, progress, left, is_ahead=left > written)
        self._repeats_to[partition] = int(self._file.note(_repeats_name(partition)) or 0)
        self._progress[partition], self._published[partition] = progress, written
        self._publish({partition: self._pending(partition)})
        self._transport.seek(partition, progress.next_offset)
        return progress.next_offset

    def values(self, partition: Partition) -> Values:  # noqa: ARG002 - All partitions have the same values.
        return self._file

    def let_go(self, partition: Partition) -> None:
        self._progress.pop(partition, None)

    def poll(self, most: int, timeout_ms: int) -> Polled:
        return self._transport.poll(most, timeout_ms)

    def commit(self, steps: Mapping[Partition, Step]) -> None:
        output = {partition: self._numbered(partition, step) for partition, step in steps.items()}
        with self._file.writing() as writing:
            for partition, step in steps.items():
                writing.put(step.turn.changes)
                writing.remove_pending(partition.number, self._published[partition])
                writing.add_pending(partition.number, [_to_row(to_pending(each)) for each in output[partition]])
                number = self._progress[partition].number + len(output[partition])
                writing.progress(partition.number, Progress(step.next_offset, number))
        for partition, step in steps.items():
            number = self._progress[partition].number + len(output[partition])
            self._progress[partition] = Progress(step.next_offset, number)
        self._publish(output)

    def close(self) -> None:
        self._transport.close()
        self._file.close()

    def _publish(self, output: Mapping[Partition, list[OutputRecord]]) -> None:
        """Write output that is in the values' file, and note in the position that it is written."""
        self._transport.publish([PartitionOutput(each, tuple(records), self._position(each)) for each, records in output.items()])
        for partition in output:
            self._published[partition] = self._progress[partition].number

    def _go_on_behind(self, partition: Partition, progress: Progress | None, left: int, *, is_ahead: bool) -> Progress:
        """Note that the values are older than the output, of which the number `left` is written; return the new progress.

        Numbers are not used twice: the transport passes over those that it has written. What is pending in older values is
        written. With `is_ahead` output is written beyond the position, and it is unknown which commands caused it.
        """
        next_offset = self._transport.start_offset(partition) if progress is None else progress.next_offset
        found = self._transport.position(partition)
        repeats_to = self._transport.end_offset(partition) if is_ahead else found.offset if found is not None else 0
        with self._file.writing() as writing:
            writing.progress(partition.number, Progress(next_offset, left))
            writing.note(_repeats_name(partition), str(repeats_to))
        return Progress(next_offset, left)

    def _position(self, partition: Partition) -> Position:
        """Return the position of the output: its metadata is the highest number that is written with it."""
        next_offset, number = self._progress[partition]
        return Position(next_offset, str(number))

    def _pending(self, partition: Partition) -> list[OutputRecord]:
        found = [from_pending(Pending(*row)) for row in self._file.pending(partition.number)]
        return [each for each in found if each.number > self._published[partition]]

    def _numbered(self, partition: Partition, step: Step) -> list[OutputRecord]:
        records = numbered(step.turn.output, self._progress[partition].number + 1)
        if not self._may_repeat(partition, step):
            return records
        return [replace(each, headers=(*each.headers, _MARK)) for each in records]

    def _may_repeat(self, partition: Partition, step: Step) -> bool:
        """Return whether output of the step may have been written before the values were lost."""
        repeats_to = self._repeats_to[partition]
        return self._progress[partition].next_offset < repeats_to or step.next_offset <= repeats_to


def _repeats_name(partition: Partition) -> str:
    """Return the name of the note of how far commands are read once more. A worker that dies meanwhile has a successor."""
    return f"repeats-to-{partition.number}"


def _to_row(pending: Pending) -> tuple[int, bytes]:
    return pending.number, pending.body
