"""Partitions: the page, and the operations of the API."""

from collections.abc import Collection, Iterator, Mapping
from typing import NamedTuple

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from notification_service.console.access.role import Role
from notification_service.console.access.roles import route
from notification_service.console.api.operation import Operation
from notification_service.console.context import Console, identity_of
from notification_service.status.report import PartitionStatus, UntakenPartition
from notification_service.status.service_report import NOT_RUNNING, ServiceReport
from resequencer.errors import ResequencerError
from resequencer.record import Partition


class PartitionRow(NamedTuple):
    """One partition. What is not known is None. `stored` is the next offset to read by the storage, `end` the log's end now."""

    partition: str
    held: PartitionStatus | None
    untaken: UntakenPartition | None
    stored: int | None
    end: int | None

    @property
    def position(self) -> int | None:
        return self.held.read_to if self.held else self.stored

    @property
    def lag(self) -> int | None:
        """How far the log goes on beyond what was read: offsets on Kafka, bytes of files."""
        return None if self.end is None or self.position is None else max(0, self.end - self.position)

    @property
    def undecided(self) -> int | None:
        """How much a restart would read again: from the acknowledged position to where reading is, in the unit of `lag`."""
        return None if self.held is None else max(0, self.held.read_to - self.held.acknowledged)

    @property
    def is_held_back(self) -> bool:
        return self.held is not None and not (self.held.held_by is None and self.held.held_by_unit is None)

    @property
    def advice(self) -> str | None:
        """What an operator can do about what holds the position back, None if nothing does."""
        if self.untaken is not None:
            return f"repair the {self.untaken.unavailable}; the worker then takes the partition over by itself"
        if self.held is None or not self.is_held_back:
            return None
        if self.held.held_by_unit is not None:
            return "look at what this unit waits for; the position moves on when the unit is done, or at its deadline"
        return "nothing while this is new; if it stays for minutes, look at the worker's state and at the oldest waiting units"


class PartitionTable(NamedTuple):
    """All rows, and what could not be found out."""

    rows: tuple[PartitionRow, ...]
    problems: tuple[str, ...]


def partition_routes(console: Console) -> list[Route]:
    def partitions(request: Request) -> Response:
        service = console.sources.find_report()
        table = partition_table(console, service)
        is_running = service is not None and service.state != NOT_RUNNING
        may_order = console.sources.open_orders is not None and identity_of(request).may(Role.OPERATOR)
        return console.page(request, "partitions.html", table=table, is_running=is_running, may_order=may_order)

    return [route("/partitions", partitions, name="partitions")]


def partition_table(console: Console, service: ServiceReport | None) -> PartitionTable:
    """Put together what the reports, the log and the storage say. A part that does not answer leaves its column empty."""
    problems: list[str] = []
    whole = service.whole if service is not None and service.state != NOT_RUNNING else None
    held = {each.partition: each for each in whole.partitions} if whole else {}
    untaken = {each.partition: each for each in whole.untaken} if whole else {}
    ends: Mapping[Partition, int] = {}
    try:
        ends = console.sources.find_ends()
    except ResequencerError as error:
        problems.append(f"the ends of the logs are not known: {error}")
    known = ends or _partitions(console)
    stored = dict(_stored(console, known, problems))
    names = {str(each): each for each in known} | {name: Partition.find(name) for name in (*held, *untaken)}
    order = sorted(names, key=lambda name: names[name] or Partition(name, 0))
    rows = tuple(
        PartitionRow(name, held.get(name), untaken.get(name), stored.get(name), ends.get(names[name] or Partition(name, 0)))
        for name in order
    )
    return PartitionTable(rows, tuple(problems))


def _partitions(console: Console) -> Collection[Partition]:
    """Return the partitions of an input whose ends are not known."""
    try:
        return console.sources.find_partitions()
    except ResequencerError:
        return ()


def _stored(console: Console, partitions: Collection[Partition], problems: list[str]) -> Iterator[tuple[str, int]]:
    with console.viewing() as view:
        if view is None:
            return
        for each in partitions:
            try:
                header = view.find_header(each)
            except ResequencerError as error:
                problems.append(f"the storage's position is not known: {error}")
                return
            if header is not None and header.next_offset is not None:
                yield str(each), header.next_offset


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
