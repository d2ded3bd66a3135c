"""The orders log in files: the contract, and what only a file can suffer."""

import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from guardian.ports import OutputRecord, PartitionOutput, Position, TransportUnavailable
from notification_service.connectors.files.operations import SystemFiles
from notification_service.connectors.files.orders import OrderFiles
from notification_service.connectors.files.settings import FileSettings
from notification_service.connectors.files.sink import FileTransport
from notification_service.connectors.line_format import Line, encode_line
from resequencer.order import encode_order
from resequencer.record import Partition
from tests.notification_service.connectors.orders.contract import OrdersContract, Reading, is_readable, order, outcome

FIRST = Partition("T", 0)


class Ended(BaseException):
    """The process ends here: our code must not catch it."""


class StruckFiles(SystemFiles):
    """A disk on which the next write keeps only `torn` bytes, or the next sync of a file fails, with this error."""

    def __init__(self, error: BaseException, torn: int | None = None) -> None:
        self._error = error
        self._torn = torn

    def write(self, descriptor: int, data: bytes | memoryview) -> int:
        if self._torn is None:
            return super().write(descriptor, data)
        super().write(descriptor, data[: self._torn])
        raise self._error

    def fsync(self, descriptor: int) -> None:
        raise self._error


class FileHarness:
    partitions: Sequence[Partition] = (FIRST, Partition("T", 1))

    def __init__(self, directory: Path, rotate_bytes: int | None = None) -> None:
        self.orders = directory / "orders"
        self._settings = FileSettings("T", directory / "in", directory / "out", rotate_bytes=rotate_bytes, has_orders=True)

    def log(self, partition: Partition = FIRST) -> Path:
        return self.orders / f"partition-{partition.number}.jsonl"

    def source(self) -> OrderFiles:
        return self.book()

    def book(self, files: SystemFiles | None = None) -> OrderFiles:
        return OrderFiles(self.orders, self._settings.out_directory, files or SystemFiles())

    def put(self, partition: Partition, value: bytes) -> None:
        self.append_bytes(encode_line(Line(value)), partition)

    def append_bytes(self, data: bytes, partition: Partition = FIRST) -> None:
        self.orders.mkdir(exist_ok=True)
        with self.log(partition).open("ab") as file:
            file.write(data)

    def publish(self, partition: Partition, *outcomes: OutputRecord) -> None:
        transport = FileTransport(self._settings, lambda *_: None)
        for each in outcomes:
            transport.publish([PartitionOutput(partition, (each,), Position(0, f"m{each.number}"))])
        transport.close()


@pytest.fixture
def harness(tmp_path: Path) -> FileHarness:
    return FileHarness(tmp_path)


class TestOrdersInFiles(OrdersContract):
    @pytest.fixture
    def harness(self, tmp_path: Path) -> FileHarness:
        return FileHarness(tmp_path)


def test_a_line_without_its_end_waits_for_it(harness: FileHarness):
    line = encode_line(Line(encode_order(order("a"))))
    reading = Reading(harness.source(), FIRST)
    harness.append_bytes(line[:30])
    reading.poll()
    assert (reading.records[FIRST], reading.source.bounds(FIRST)) == ([], range(0))
    harness.append_bytes(line[30:])
    reading.poll_until(1)
    assert reading.ids(FIRST) == ["a"]


@pytest.mark.parametrize("torn", [1, 30, -1], ids=["its first byte", "a part", "all but its end"])
def test_an_order_whose_writer_was_killed_is_not_executed_and_takes_no_other_with_it(harness: FileHarness, torn: int):
    harness.book().append(FIRST, order("a"))
    reading = Reading(harness.source(), FIRST)
    with pytest.raises(Ended):
        harness.book(StruckFiles(Ended(), torn)).append(FIRST, order("killed"))
    reading.poll_until(1)
    assert harness.book().append(FIRST, order("b")) == reading.next_offsets[FIRST]
    reading.poll_until(2)
    assert reading.ids(FIRST) == ["a", "b"]


@pytest.mark.parametrize("error", [Ended(), OSError(5, "Input/output error")], ids=["killed", "a disk that fails"])
def test_an_order_that_was_written_and_not_confirmed_stays_where_a_worker_may_have_read_it(
    harness: FileHarness, error: BaseException
):
    """If it were cut off, the log would end before what the worker has read, and all its orders would count as new."""
    with pytest.raises((Ended, TransportUnavailable)):
        harness.book(StruckFiles(error)).append(FIRST, order("not confirmed"))
    reading = Reading(harness.source(), FIRST)
    reading.poll_until(1)
    harness.book().append(FIRST, order("b"))
    reading.poll_until(2)
    assert reading.ids(FIRST) == ["not confirmed", "b"]


def test_an_order_that_a_power_cut_may_still_take_is_not_read(harness: FileHarness):
    harness.book().append(FIRST, order("a"))
    source = harness.book(StruckFiles(OSError(5, "Input/output error")))
    with pytest.raises(TransportUnavailable):
        source.poll({FIRST: 0}, 10)


def test_a_log_that_was_made_anew_is_read_from_its_start(harness: FileHarness):
    reading = Reading(harness.source(), FIRST)
    for name in ("a", "b"):
        harness.book().append(FIRST, order(name))
    reading.poll_until(2)
    harness.log().unlink()
    reading.poll()
    harness.book().append(FIRST, order("c"))
    reading.poll_until(3)
    assert reading.ids(FIRST) == ["a", "b", "c"]


def test_a_log_that_was_emptied_is_read_from_its_start_even_if_it_has_grown_since(harness: FileHarness):
    reading = Reading(harness.source(), FIRST)
    harness.book().append(FIRST, order("a"))
    reading.poll_until(1)
    os.truncate(harness.log(), 0)
    reading.poll()
    for name in ("b", "c"):
        harness.book().append(FIRST, order(name))
    reading.poll_until(3)
    assert reading.ids(FIRST) == ["a", "b", "c"]


def test_an_order_that_is_no_value_of_a_line_is_no_order(harness: FileHarness):
    harness.append_bytes(encode_order(order("bare")) + b"\n")
    harness.append_bytes(b'{"value": ' + b" " * 1_000_000 + b"1}\n")
    reading = Reading(harness.source(), FIRST)
    reading.poll_until(2)
    assert [is_readable(each) for each in reading.records[FIRST]] == [False, False]
    assert len(harness.source().find_without_outcome(FIRST)) == 2


def test_outcomes_in_rotated_files_are_found(tmp_path: Path):
    harness = FileHarness(tmp_path, rotate_bytes=300)
    offsets = [harness.book().append(FIRST, order(str(number))) for number in range(6)]
    harness.publish(FIRST, *(outcome(number + 1, FIRST, order(str(number)), offset) for number, offset in enumerate(offsets[:5])))
    assert len(list((tmp_path / "out").glob("orders*.jsonl"))) > 2
    assert [each.outcome.order_offset for each in harness.book().outcomes([FIRST], 0)] == offsets[:5]
    assert [each.offset for each in harness.source().find_without_outcome(FIRST)] == offsets[5:]
