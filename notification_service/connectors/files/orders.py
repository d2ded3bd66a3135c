"""Orders and their outcomes in files: `partition-N.jsonl` in the orders directory, and `orders.jsonl` among the outputs.

Operators append to the orders under a lock; the worker only reads them. An order's offset is the byte at which its line begins.
A complete line is never taken away again, because the worker may have executed its order already. A last
line without its end is from a writer that was killed: the worker has not read it, and the next writer cuts it off.
"""

import logging
import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from fcntl import LOCK_EX, flock
from functools import partial
from pathlib import Path

from guardian.ports import Channel, GivenOrder, GivenOutcome, OrderBatch, OrderRecord
from notification_service.connectors.files.line_reader import FoundLine, LineReader
from notification_service.connectors.files.operations import (
    FileOperations,
    find_end_of_lines,
    sync_directory,
    translated,
    write_all,
)
from notification_service.connectors.files.positions import find_number
from notification_service.connectors.files.scan import scan, scan_output
from notification_service.connectors.line_format import Defect, Line, decode_line, encode_line
from resequencer.clock import Instant
from resequencer.order import LONGEST_BYTES, Order, OrderUnreadable, decode_order, decode_outcome, encode_order
from resequencer.record import Partition
from storage.private_file import make_private, make_private_directory

_MAX_BYTES = 4 * 1024 * 1024
"""How many bytes of one partition's orders a poll reads at most."""

_LOG = logging.getLogger("resequencer.connectors")


class OrderFiles:
    """Implements `OrderSource` and `OrderBook` in one: what operators append, and what the worker reads."""

    def __init__(self, directory: Path, out_directory: Path, files: FileOperations) -> None:
        self._directory = directory
        self._outcomes = out_directory / f"{Channel.ORDER_OUTCOMES}.jsonl"
        self._files = files

    # The owner's side

    def bounds(self, partition: Partition) -> range:
        path = self._path(partition)
        with translated(path):
            try:
                descriptor = self._files.open(path, os.O_RDONLY)
            except FileNotFoundError:
                return range(0)
            try:
                return range(find_end_of_lines(self._files, descriptor, os.fstat(descriptor).st_size))
            finally:
                os.close(descriptor)

    def poll(self, next_offsets: Mapping[Partition, int], limit: int) -> Mapping[Partition, OrderBatch]:
        batches = ((each, self._batch(each, offset, limit)) for each, offset in next_offsets.items())
        return {partition: batch for partition, batch in batches if batch is not None}

    def find_without_outcome(self, partition: Partition) -> Sequence[OrderRecord]:
        outcomes = [each for _, each in self._each_outcome({partition})]
        known = {(each.order_offset, None if each.order is None else each.order.id) for each in outcomes}
        found: list[OrderRecord] = []
        for line in self._lines(partition):
            record = _record(line)
            try:
                order = decode_order(record.value)
            except OrderUnreadable:
                if (record.offset, None) not in known:
                    found.append(record)
                continue
            if order.stage is None and (record.offset, order.id) not in known:
                found.append(record)
        return found

    # The operators' side

    def append(self, partition: Partition, order: Order) -> int:
        path = self._path(partition)
        key = None if order.unit is None else order.unit.encode()
        line = encode_line(Line(encode_order(order), key))
        with translated(path):
            make_private_directory(self._directory)
            descriptor = self._files.open(make_private(path), os.O_RDWR | os.O_APPEND)
            try:
                flock(descriptor, LOCK_EX)
                end = self._cut_off_rest(path, descriptor)
                write_all(self._files, descriptor, line)
                self._files.fsync(descriptor)
                sync_directory(self._files, self._directory)
                return end
            finally:
                os.close(descriptor)

    def orders(self, partitions: Collection[Partition], since: Instant) -> Sequence[GivenOrder]:
        given: list[GivenOrder] = []
        for partition in sorted(partitions):
            for line in self._lines(partition):
                record = _record(line)
                with suppress(OrderUnreadable):
                    order = decode_order(record.value)
                    if order.at >= since:
                        given.append(GivenOrder(partition, record.offset, order))
        return sorted(given, key=lambda each: each.order.at)

    def outcomes(self, partitions: Collection[Partition], since: Instant) -> Sequence[GivenOutcome]:
        return [each for each in self._each_outcome(frozenset(partitions)) if each.outcome.at >= since]

    def close(self) -> None:
        """Do nothing: no file stays open."""

    def _path(self, partition: Partition) -> Path:
        return self._directory / f"partition-{partition.number}.jsonl"

    def _batch(self, partition: Partition, offset: int, limit: int) -> OrderBatch | None:
        path = self._path(partition)
        with translated(path):
            try:
                if path.stat().st_size == offset:
                    return None
                descriptor = self._files.open(path, os.O_RDONLY)
            except FileNotFoundError:
                return None
            try:
                return self._read(descriptor, offset, limit)
            finally:
                os.close(descriptor)

    def _read(self, descriptor: int, given: int, limit: int) -> OrderBatch | None:
        """Return the records from an offset on, durable: no power cut makes the log shorter than what was read."""
        size = os.fstat(descriptor).st_size
        is_other_file = given > size or (given > 0 and self._files.read(descriptor, 1, given - 1) != b"\n")
        offset = 0 if is_other_file else given  # Another file of this name: its orders are new.
        reader = LineReader(_reading(self._files, descriptor), offset, LONGEST_BYTES * 3)
        records: list[OrderRecord] = []
        while len(records) < limit and reader.offset < offset + _MAX_BYTES:
            line = reader.next_line()
            if line is not None:
                records.append(_record(line))
            elif not reader.fill(size):
                break
        if not records and not is_other_file:
            return None
        self._files.fsync(descriptor)
        sync_directory(self._files, self._directory)
        return OrderBatch(tuple(records), reader.offset)

    def _lines(self, partition: Partition) -> Iterator[FoundLine]:
        return scan(self._path(partition), self._files)

    def _each_outcome(self, partitions: Collection[Partition]) -> Iterator[GivenOutcome]:
        for _, line in scan_output(self._outcomes, self._files):
            number, read = find_number(line.content), decode_line(line.content)
            if number is None or number.partition not in partitions or isinstance(read, Defect):
                continue
            with suppress(OrderUnreadable):
                yield GivenOutcome(number.partition, decode_outcome(read.content))

    def _cut_off_rest(self, path: Path, descriptor: int) -> int:
        """Cut off what is behind the last complete line, and return where that line ends."""
        size = os.fstat(descriptor).st_size
        end = find_end_of_lines(self._files, descriptor, size)
        if end < size:
            _LOG.warning("%s ends in a torn line of %d bytes; cutting it off", path, size - end)
            self._files.truncate(descriptor, end)
        return end


def _record(line: FoundLine) -> OrderRecord:
    """Return the order's bytes: the line's value. If it is no record: the problem as text; `decode_order` refuses it."""
    read = Defect("it is too long") if line.cut else decode_line(line.content)
    value = f"no record of an order: {read.problem}".encode() if isinstance(read, Defect) else read.content
    return OrderRecord(line.start, value)


def _reading(files: FileOperations, descriptor: int) -> Callable[[int, int], bytes]:
    return partial(files.read, descriptor)
