"""The partitions: position and end, and what holds a position back."""

import msgspec
from starlette.requests import Request

from notification_service.console.api.operation import Operation
from notification_service.console.context import Console
from notification_service.console.pages.partitions import PartitionRow, partition_table
from notification_service.status.report import PartitionStatus, UntakenPartition


class PartitionAnswer(msgspec.Struct, frozen=True):
    """One partition of the input. `held` is what its worker reports, `untaken` why a worker could not take it over yet.

    `stored` is the next offset to read as the storage has it, `end` where the log ends now, `lag` how far it goes beyond what was
    read: offsets on Kafka, bytes of files. `undecided` is what a restart would read again, in the same unit; `advice` is what to
    do about what holds the position back, null if nothing does. What is not known is null.
    """

    partition: str
    held: PartitionStatus | None
    untaken: UntakenPartition | None
    stored: int | None
    end: int | None
    lag: int | None
    undecided: int | None
    advice: str | None


class PartitionsAnswer(msgspec.Struct, frozen=True):
    """The partitions in order, and what could not be found out."""

    partitions: tuple[PartitionAnswer, ...]
    problems: tuple[str, ...]


def partition_operations(console: Console) -> list[Operation]:
    def partitions(request: Request, query: msgspec.Struct) -> PartitionsAnswer:
        del request, query
        table = partition_table(console, console.sources.find_report())
        return PartitionsAnswer(tuple(map(_answer, table.rows)), table.problems)

    return [Operation("/partitions", "partitions", partitions, PartitionsAnswer, "The partitions of the input")]


def _answer(row: PartitionRow) -> PartitionAnswer:
    return PartitionAnswer(row.partition, row.held, row.untaken, row.stored, row.end, row.lag, row.undecided, row.advice)
