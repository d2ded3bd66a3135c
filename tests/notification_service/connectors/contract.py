"""The contract of transports (guardian/ports.py), as tests that each implementation runs on the real thing.

A transport's test file derives from `TransportContract` and gives the fixture `harness`.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from random import Random
from time import monotonic
from typing import Protocol

import pytest
from harness.waiting import pause_at_random, wait_until

from guardian.ports import Channel, OutputRecord, PartitionOutput, Polled, Position, Transport, TransportRefused
from resequencer.record import Headers, Partition, Record


class Left(Protocol):
    """A published record as its reader sees it."""

    key: bytes | None
    value: bytes
    headers: Headers


class Harness(Protocol):
    """Makes transports on one source with two partitions and one sink, both empty at first. The sink takes facts."""

    partitions: Sequence[Partition]

    def make(self) -> Transport:
        """Make a transport as another process would, after the one before is closed."""
        ...

    def send(self, partition: Partition, *values: bytes) -> None: ...

    def left(self, channel: Channel) -> Sequence[Left]:
        """Return what a reader finds, in the order of the sink; if the sink has several partitions, each is in order."""
        ...


class Reading:
    """A transport prepared as a guardian does before it reads. `records` are the records so far; `read_to` is where
    reading continues.
    """

    def __init__(self, transport: Transport, sought: Collection[Partition] = ()) -> None:
        self.transport = transport
        self.records: list[Record] = []
        self.read_to: dict[Partition, int] = {}
        self.ends: dict[Partition, int] = {}
        self.log_ends: dict[Partition, int] = {}
        for each in sought:
            self.seek(each, transport.start_offset(each))

    def seek(self, partition: Partition, offset: int) -> None:
        self.transport.position(partition)
        self.transport.seek(partition, offset)
        self.read_to[partition] = offset

    def poll(self, max_records: int = 100, resting: Collection[Partition] = ()) -> Polled:
        polled = self.transport.poll(max_records, 50, resting)
        self.records.extend(polled.records)
        self.read_to |= polled.next_offsets
        self.ends |= polled.ends
        self.log_ends |= polled.log_ends
        return polled

    def read(self, count: int) -> list[bytes]:
        """Read until there are `count` records; return their values."""
        wait_until(lambda: self.poll() and len(self.records) >= count, f"{count} records")
        return [each.value for each in self.records]


def notification(number: int, value: bytes, key: bytes | None = b"unit", headers: Headers = ()) -> OutputRecord:
    return OutputRecord(number, Channel.NOTIFICATIONS, key, headers, value)


def letter(number: int, value: bytes) -> OutputRecord:
    return OutputRecord(number, Channel.DEAD_LETTERS, None, (("dead-letter-reason", b"undecodable"),), value)


@contextmanager
def another_thread(work: Callable[[], object]) -> Iterator[None]:
    """Let another thread work meanwhile, until the work is done."""
    with ThreadPoolExecutor(1) as threads:
        working = threads.submit(work)
        yield
        working.result()


class WakeableSource(Protocol):
    """What transports and sources have in common here."""

    def poll(self, max_records: int, timeout_ms: int) -> Polled: ...

    def wake(self) -> None: ...


class Sender(Protocol):
    partitions: Sequence[Partition]

    def send(self, partition: Partition, *values: bytes) -> None: ...


class WakeContract:
    """The tests of `wake`. A derived class has the fixture `source`: a transport or source that has sought both partitions."""

    LONG_MS = 120_000

    def poll_that_is_woken(self, source: WakeableSource, max_records: int = 100) -> Polled:
        began = monotonic()
        polled = source.poll(max_records, self.LONG_MS)
        assert monotonic() - began < self.LONG_MS / 1_000 / 2, "it waited until its time was up"
        return polled

    def test_another_thread_wakes_a_poll_at_any_moment(self, harness: Sender, source: WakeableSource) -> None:
        def wake() -> None:
            pause_at_random(Random(), 0, 0.05)
            source.wake()

        for number in range(20):
            with another_thread(wake):
                polled = self.poll_that_is_woken(source, number % 2)
            assert (polled.records, dict(polled.next_offsets)) == ((), {})
            assert set(polled.log_ends) == set(harness.partitions)
            assert polled.ends.items() <= polled.log_ends.items()

    def test_wakes_before_a_poll_end_it_and_no_other(self, harness: Sender, source: WakeableSource) -> None:
        source.wake()
        source.wake()
        source.poll(100, 0)
        assert self.poll_that_is_woken(source).records == ()
        with another_thread(lambda: harness.send(harness.partitions[0], b'{"n":1}')):
            assert [each.value for each in self.poll_that_is_woken(source).records] == [b'{"n":1}']

    def test_while_it_is_woken_no_record_is_lost_or_doubled(self, harness: Sender, source: WakeableSource) -> None:
        sent, records = [b'{"n":%d}' % each for each in range(100)], list[Record]()

        def wake() -> None:
            for _ in sent:
                pause_at_random(Random(), 0, 0.01)
                source.wake()

        with another_thread(wake):
            for first in range(0, len(sent), 10):
                harness.send(harness.partitions[0], *sent[first : first + 10])
                records += source.poll(7, 50).records
        wait_until(lambda: records.extend(source.poll(7, 50).records) or len(records) >= len(sent), "all records")
        assert source.poll(100, 50).records == ()
        assert [each.value for each in records] == sent
        assert len({each.origin for each in records}) == len(sent)


class TransportContract(WakeContract):
    """The tests of the contract. Derive from it in a file of its own, with the fixture `harness`."""

    @pytest.fixture
    def made(self, harness: Harness):
        """Makes transports that have the assigned partitions. Each is closed before the next is made, and the last
        one at the end.
        """
        alive: list[Transport] = []

        def make() -> Transport:
            while alive:
                alive.pop().close()
            alive.append(transport := harness.make())
            wanted = sorted(harness.partitions)
            wait_until(lambda: sorted(transport.assignment()) == wanted or not transport.poll(1, 50), "the assignment")
            return transport

        yield make
        while alive:
            alive.pop().close()

    @pytest.fixture
    def source(self, harness: Harness, made) -> Transport:
        return Reading(made(), harness.partitions).transport

    def test_records_come_in_the_order_of_their_partition_each_once(self, harness: Harness, made) -> None:
        one, two = harness.partitions
        harness.send(one, b'{"n":1}', b'{"n":2}')
        harness.send(two, b'{"n":3}')
        harness.send(one, b'{"n":4}')
        reading = Reading(made(), harness.partitions)
        reading.read(4)
        by_partition = {each: [r.value for r in reading.records if r.origin.partition == each] for each in harness.partitions}
        assert by_partition == {one: [b'{"n":1}', b'{"n":2}', b'{"n":4}'], two: [b'{"n":3}']}
        offsets = [r.origin.offset for r in reading.records if r.origin.partition == one]
        assert offsets == sorted(set(offsets))
        assert reading.poll().records == ()

    def test_what_is_not_sought_is_not_read(self, harness: Harness, made) -> None:
        one, two = harness.partitions
        harness.send(one, b'{"n":1}')
        harness.send(two, b'{"n":2}')
        reading = Reading(made(), [two])
        assert reading.read(1) == [b'{"n":2}']
        assert reading.poll().records == ()

    def test_no_poll_brings_more_than_it_is_asked_for(self, harness: Harness, made) -> None:
        harness.send(harness.partitions[0], *[b'{"n":%d}' % each for each in range(7)])
        reading = Reading(made(), harness.partitions)
        sizes = []
        while len(reading.records) < 7:
            sizes.append(len(reading.poll(3).records))
        assert max(sizes) == 3

    def test_a_poll_for_nothing_brings_nothing_and_passes_nothing_over(self, harness: Harness, made) -> None:
        reading = Reading(made(), harness.partitions)
        harness.send(harness.partitions[0], b'{"n":1}')
        polled = reading.poll(0)
        assert (polled.records, dict(polled.next_offsets)) == ((), {})
        assert set(polled.ends) == set(polled.log_ends) == set(harness.partitions)
        assert reading.read(1) == [b'{"n":1}']

    def test_a_partition_that_rests_is_not_read_while_others_are(self, harness: Harness, made) -> None:
        one, two = harness.partitions
        reading = Reading(made(), harness.partitions)
        harness.send(one, b'{"n":1}')
        harness.send(two, b'{"n":2}')
        polls: list[Polled] = []
        wait_until(lambda: polls.append(reading.poll(resting=[one])) or reading.records, "the other's record")
        assert [each.value for each in reading.records] == [b'{"n":2}']
        assert set(polls[-1].log_ends) == {one, two}
        assert polls[-1].log_ends[one] > reading.read_to.get(one, 0)
        assert reading.read(2) == [b'{"n":2}', b'{"n":1}']

    def test_reading_goes_on_where_it_is_sought(self, harness: Harness, made) -> None:
        one, _ = harness.partitions
        harness.send(one, b'{"n":1}', b'{"n":2}', b'{"n":3}')
        reading = Reading(made(), [one])
        reading.read(3)
        second, end = reading.records[1].origin.offset, reading.read_to[one]
        reading.records.clear()
        reading.seek(one, second)
        assert reading.read(2) == [b'{"n":2}', b'{"n":3}']
        reading.records.clear()
        reading.seek(one, end)
        assert reading.poll().records == ()

    def test_reading_reaches_the_end_that_is_told_without_new_input(self, harness: Harness, made) -> None:
        one, _ = harness.partitions
        harness.send(one, b'{"n":1}', b'{"n":2}')
        reading = Reading(made(), [one])
        reading.read(2)
        wait_until(lambda: reading.poll() and reading.read_to[one] == reading.ends[one], "the end")
        assert reading.transport.end_offset(one) == reading.ends[one]
        assert reading.log_ends == reading.ends

    def test_an_end_is_no_later_than_the_records_of_its_poll(self, harness: Harness, made) -> None:
        one, _ = harness.partitions
        reading = Reading(made(), [one])
        for number in range(5):
            harness.send(one, b'{"n":%d}' % number)
            polled = reading.poll()
            assert polled.ends[one] <= reading.transport.end_offset(one)
            assert polled.ends[one] <= polled.log_ends[one]

    def test_what_lies_beyond_the_log_is_refused(self, harness: Harness, made) -> None:
        one, _ = harness.partitions
        harness.send(one, b'{"n":1}')
        transport = made()
        transport.position(one)
        with pytest.raises(TransportRefused):
            transport.seek(one, transport.end_offset(one) + 1_000)

    def test_a_partition_of_which_nothing_was_published_has_no_position(self, harness: Harness, made) -> None:
        harness.send(harness.partitions[0], b'{"n":1}')
        transport = made()
        assert transport.position(harness.partitions[0]) is None
        assert transport.start_offset(harness.partitions[0]) == 0

    def test_what_is_published_is_there_with_its_key_headers_and_value_in_order(self, harness: Harness, made) -> None:
        one, _ = harness.partitions
        transport = made()
        transport.position(one)
        headers = (("notification-id", b"N1"), ("event-name", "Zürich".encode()))
        records = (notification(1, b'{"a":1}', b"unit", headers), letter(2, b"\xff\x00"), notification(3, b'{"a":2}'))
        transport.publish([PartitionOutput(one, records, Position(0, "m"))])
        left = harness.left(Channel.NOTIFICATIONS)
        assert [(each.key, each.value) for each in left] == [(b"unit", b'{"a":1}'), (b"unit", b'{"a":2}')]
        assert tuple(left[0].headers) == headers
        (dead,) = harness.left(Channel.DEAD_LETTERS)
        assert (dead.key, dead.value, tuple(dead.headers)) == (None, b"\xff\x00", (("dead-letter-reason", b"undecodable"),))

    def test_facts_leave_with_it_in_order_and_whole(self, harness: Harness, made) -> None:
        one, _ = harness.partitions
        transport = made()
        transport.position(one)
        headers = (("member", "ünit".encode()), ("late", b"true"))
        values = ['{"type":"status","unit":"ünit","amount":"1.50","text":"a\\nb"}'.encode(), b'{"type":"status"}']
        facts = [OutputRecord(number, Channel.FACTS, b"group", headers, value) for number, value in enumerate(values, 2)]
        transport.publish([PartitionOutput(one, (notification(1, b'{"a":1}'), *facts), Position(0, '["t",1,3]'))])
        left = harness.left(Channel.FACTS)
        assert [(each.key, tuple(each.headers), each.value) for each in left] == [(b"group", headers, each) for each in values]
        assert [each.value for each in harness.left(Channel.NOTIFICATIONS)] == [b'{"a":1}']

    def test_positions_of_all_partitions_leave_with_it_and_are_there_for_the_next(self, harness: Harness, made) -> None:
        one, two = harness.partitions
        harness.send(one, b'{"n":1}')
        transport = made()
        for each in (one, two):
            transport.position(each)
        end = transport.end_offset(one)
        outputs = [
            PartitionOutput(one, (notification(1, b'{"a":1}'),), Position(end, '["t",1,1]')),
            PartitionOutput(two, (), Position(0, '["t",1,0]')),
        ]
        transport.publish(outputs)
        # Ask the publishing transport first, because making the next one closes it.
        for get_reader in (lambda: transport, made):
            reader = get_reader()
            assert (reader.position(one).offset, reader.position(one).metadata) == (end, '["t",1,1]')
            assert reader.position(two) == Position(0, '["t",1,0]')

    def test_a_position_alone_may_be_published(self, harness: Harness, made) -> None:
        one, _ = harness.partitions
        transport = made()
        transport.position(one)
        for number in range(3):
            transport.publish([PartitionOutput(one, (), Position(0, f'["t",{number},0]'))])
        assert transport.position(one) == Position(0, '["t",2,0]')
        assert harness.left(Channel.NOTIFICATIONS) == []

    @pytest.mark.parametrize("metadata", ["", '["t",1,2]', "é" * 1_000, "x" * 4_000])
    def test_metadata_comes_back_as_it_was_given(self, harness: Harness, made, metadata: str) -> None:
        one, _ = harness.partitions
        transport = made()
        transport.position(one)
        transport.publish([PartitionOutput(one, (), Position(0, metadata))])
        assert made().position(one) == Position(0, metadata)

    def test_the_source_is_the_same_for_all_partitions_and_after_each_start(self, harness: Harness, made) -> None:
        first = [made().source(each) for each in harness.partitions]
        assert [made().source(each) for each in harness.partitions] == first

    def test_it_stands_among_those_who_know_what_is_theirs(self, harness: Harness, made) -> None:
        standing = made().standing()
        assert standing.has_joined
        assert standing.notes == ()
