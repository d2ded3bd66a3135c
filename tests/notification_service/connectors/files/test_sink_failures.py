"""Exactly once after any failure at any time: each operation of the sink fails once, in every possible way."""

import errno
import itertools
import json
import shutil
from pathlib import Path

import msgspec
import pytest
from harness.nightly import at_night

from guardian.ports import Channel, OutputRecord, PartitionOutput, Position, TransportUnavailable
from notification_service.connectors.files.rotated_names import find_rotated
from notification_service.connectors.files.sink import FileTransport
from resequencer.record import Partition

P0, P1 = Partition("T", 0), Partition("T", 1)
CHANNELS = (Channel.NOTIFICATIONS, Channel.DEAD_LETTERS, Channel.NOTIFICATIONS, Channel.FACTS)
CYCLES = 4
TORN_AND_ROTATING = [(60, 130), *at_night("files", (60, None), (0, None), (1, None), (100, None), (0, 1))]
"""How many bytes a struck write leaves, and the size of a full output: unlimited, or reached by each line, or by
the second or third.
"""


class Worker:
    """A small worker's cycle: it numbers output, publishes what is pending, and keeps it until the position covers it.

    `pending` stands for the storage, which survives a crash: by partition, number → records.
    """

    def __init__(self) -> None:
        self.pending: dict[Partition, dict[int, OutputRecord]] = {P0: {}, P1: {}}
        self.highest = {P0: 0, P1: 0}
        self.cycle = 0

    def decide(self) -> None:
        self.cycle += 1
        for partition in [P0, P1] if self.cycle % 2 else [P0]:
            for channel in CHANNELS:
                number = self.highest[partition] = self.highest[partition] + 1
                self.pending[partition][number] = OutputRecord(
                    number, channel, b"k", (), b"%s-%d" % (str(partition).encode(), number)
                )

    def publish(self, transport: FileTransport) -> None:
        transport.publish([self._output(partition) for partition in (P0, P1)])
        for partition in (P0, P1):
            self.pending[partition].clear()

    def take_over(self, transport: FileTransport) -> None:
        for partition in (P0, P1):
            position = transport.position(partition)
            published = int(position.metadata or 0) if position else 0
            beyond = position.beyond if position else frozenset()
            # The storage may drop only output that the position covers, or that lies beyond the position.
            self.pending[partition] = {
                n: each for n, each in self.pending[partition].items() if n > published and n not in beyond
            }

    def _output(self, partition: Partition) -> PartitionOutput:
        records = tuple(self.pending[partition][number] for number in sorted(self.pending[partition]))
        return PartitionOutput(partition, records, Position(self.cycle, str(self.highest[partition])))


def play(transport: FileTransport, worker: Worker) -> None:
    worker.take_over(transport)
    if worker.cycle:
        worker.publish(transport)
    while worker.cycle < CYCLES:
        worker.decide()
        worker.publish(transport)


def run(settings, files, worker: Worker) -> None:
    """Run from the start to the last cycle, or to a fault."""
    transport = FileTransport(settings, lambda *_: None, files)
    try:
        play(transport, worker)
    finally:
        # Closing writes nothing. It stands for what the system does at the end of a process.
        transport.close()


def check(settings, worker: Worker) -> None:
    left = []
    for channel in set(CHANNELS):
        path = path_of(settings, channel)
        data = b"".join(each.read_bytes() for each in (*(each.path for each in find_rotated(path)), path))
        assert data.endswith(b"\n")
        came = [json.loads(line) for line in data.splitlines()]
        assert all(line["value"] == line["number"].replace("#", "-") for line in came)
        own = [int(line["number"].partition("#")[2]) for line in came if line["number"].startswith("T-0#")]
        assert own == sorted(own)
        left += [line["number"] for line in came]
    expected = [f"{partition}#{number}" for partition in (P0, P1) for number in range(1, worker.highest[partition] + 1)]
    assert sorted(left) == sorted(expected)
    again = FileTransport(settings, lambda *_: None)
    for partition in (P0, P1):
        position = again.position(partition)
        assert (position.offset, position.metadata) == (CYCLES, str(worker.highest[partition]))
    again.close()


def path_of(settings, channel: Channel) -> Path:
    is_fact = channel is Channel.FACTS
    return settings.facts_directory / "partition-0.jsonl" if is_fact else settings.out_directory / f"{channel}.jsonl"


def empty(settings) -> None:
    for directory in (settings.out_directory, settings.facts_directory):
        shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture
def rotate_bytes() -> int | None:
    return None


@pytest.fixture
def settings(settings, rotate_bytes):
    return msgspec.structs.replace(settings, rotate_bytes=rotate_bytes, facts_directory=settings.out_directory.parent / "facts")


@pytest.fixture
def operations(settings, new_files) -> int:
    """The number of operations of a run without faults."""
    files, worker = new_files(), Worker()
    run(settings, files, worker)
    check(settings, worker)
    return files.count


@pytest.mark.slow
@pytest.mark.parametrize(("torn", "rotate_bytes"), TORN_AND_ROTATING)
def test_a_crash_at_any_operation_loses_nothing_and_doubles_nothing(settings, new_files, crash, operations, torn):
    for fault_at in range(1, operations + 1):
        empty(settings)
        files, worker = new_files(), Worker()
        files.fault_at, files.torn = fault_at, torn
        with pytest.raises(crash):
            run(settings, files, worker)
        run(settings, new_files(), worker)
        check(settings, worker)


@pytest.mark.slow
@pytest.mark.parametrize("rotate_bytes", [None, *at_night("files", 1)])
def test_a_crash_while_mending_a_crash_loses_nothing_and_doubles_nothing(settings, new_files, crash, operations):
    for first, second in itertools.product(range(3, operations + 1, 3), range(1, 16, 3)):
        empty(settings)
        worker = Worker()
        for fault_at in (first, second):
            files = new_files()
            files.fault_at, files.torn = fault_at, 70
            try:
                run(settings, files, worker)
            except crash:
                continue
        run(settings, new_files(), worker)
        check(settings, worker)


@pytest.mark.slow
@pytest.mark.parametrize("names_are_lost", [True, False])
@pytest.mark.parametrize(("torn", "rotate_bytes"), [(60, 130), *at_night("files", (60, None), (0, 130), (0, None), (60, 1))])
def test_a_power_cut_at_any_operation_loses_nothing_and_doubles_nothing(
    settings, new_files, crash, operations, torn, names_are_lost
):
    for fault_at in range(1, operations + 1):
        empty(settings)
        files, worker = new_files(), Worker()
        files.fault_at, files.torn = fault_at, torn
        with pytest.raises(crash):
            run(settings, files, worker)
        files.cut_power(names_are_lost=names_are_lost)
        run(settings, new_files(), worker)
        check(settings, worker)


@pytest.mark.slow
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])
@pytest.mark.parametrize(("torn", "rotate_bytes"), TORN_AND_ROTATING)
def test_the_same_publish_again_after_any_failure_loses_nothing_and_doubles_nothing(
    settings, new_files, operations, torn, number
):
    for fault_at in range(1, operations + 1):
        empty(settings)
        files, worker = new_files(), Worker()
        files.fault_at, files.torn, files.fault = fault_at, torn, lambda: OSError(number, "struck")
        transport = FileTransport(settings, lambda *_: None, files)
        with pytest.raises(TransportUnavailable, match=f"(out|facts).*{errno.errorcode[number]}: struck"):
            play(transport, worker)
        while any(worker.pending.values()) or worker.cycle < CYCLES:
            if not any(worker.pending.values()):
                worker.decide()
            worker.publish(transport)
        check(settings, worker)
        transport.close()


def test_a_disk_that_stays_full_keeps_the_files_good_and_goes_on_when_it_is_not(settings, new_files, no_space):
    class Full(new_files):
        is_full = False

        def write(self, descriptor, data):
            if self.is_full:
                super().write(descriptor, data[: len(data) // 2])
                raise no_space()
            return super().write(descriptor, data)

    files, worker = Full(), Worker()
    transport = FileTransport(settings, lambda *_: None, files)
    worker.decide()
    worker.publish(transport)
    good = (settings.out_directory / "notifications.jsonl").read_bytes()
    worker.decide()
    files.is_full = True
    for _ in range(5):
        with pytest.raises(TransportUnavailable, match=r"notifications.jsonl: ENOSPC"):
            worker.publish(transport)
        assert (settings.out_directory / "notifications.jsonl").read_bytes() == good
        assert transport.position(P0) == Position(1, "4", highest=4)
    files.is_full = False
    worker.publish(transport)
    play(transport, worker)
    check(settings, worker)


def test_what_a_failed_sync_may_have_lost_is_written_again(settings, new_files, no_space):
    """After a failed fsync, Linux marks the pages as clean. Only data that is written and synced again is on the disk."""
    files, worker = new_files(), Worker()
    transport = FileTransport(settings, lambda *_: None, files)
    worker.decide()
    transport.position(P0)
    files.fault, files.fault_at = no_space, files.count + 2
    with pytest.raises(TransportUnavailable):
        worker.publish(transport)
    assert (settings.out_directory / "notifications.jsonl").read_bytes() == b""
    worker.publish(transport)
    play(transport, worker)
    files.cut_power(names_are_lost=False)
    check(settings, worker)


def test_what_is_found_beyond_the_position_is_synced_before_it_counts(settings, new_files, crash):
    files, worker = new_files(), Worker()
    transport = FileTransport(settings, lambda *_: None, files)
    worker.decide()
    transport.position(P0)
    files.fault_at = files.count + 2
    with pytest.raises(crash):
        worker.publish(transport)
    after = new_files()
    again = FileTransport(settings, lambda *_: None, after)
    assert again.position(P0).beyond == {1, 3}
    path = settings.out_directory / "notifications.jsonl"
    assert after.synced(path) == path.read_bytes() != b""
