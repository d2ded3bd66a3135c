"""The contract of the orders log (guardian/order_ports.py), as tests that each implementation runs on the real thing.

A test file derives from `OrdersContract` and gives the fixture `harness`.
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from time import monotonic
from typing import Protocol

import pytest
from harness.waiting import wait_until
from msgspec.structs import replace

from guardian.headers import ORDER_PARTITION
from guardian.ports import Channel, OrderBook, OrderRecord, OrderSource, OutputRecord
from resequencer.clock import Instant
from resequencer.order import (
    LONGEST_BYTES,
    Order,
    OrderKind,
    OrderOutcome,
    OrderResult,
    OrderUnreadable,
    Stage,
    decode_order,
    encode_order,
    encode_outcome,
)
from resequencer.record import Partition

NOW: Instant = 1_774_740_835_941


class Harness(Protocol):
    """Two partitions whose orders and outcomes are empty at first. All that is made is closed by the one who asked for it."""

    partitions: Sequence[Partition]

    def source(self) -> OrderSource: ...

    def book(self) -> OrderBook: ...

    def put(self, partition: Partition, value: bytes) -> None:
        """Write a value to the log as another program may, durably."""
        ...

    def publish(self, partition: Partition, *outcomes: OutputRecord) -> None:
        """Publish by the service's own transport. Call it once."""
        ...


def order(name: str, kind: OrderKind = OrderKind.RETRY, unit: str | None = "unit", at: Instant = NOW) -> Order:
    return Order(id=name, kind=kind, by="ann", because="test", at=at, unit=unit)


def outcome(
    number: int, partition: Partition, of: Order | None, offset: int, text: str = "done", at: Instant = NOW
) -> OutputRecord:
    """Return an outcome as the owner publishes it; one of no order is that of an unreadable record."""
    result = OrderResult.REFUSED_UNREADABLE if of is None else OrderResult.DONE
    value = encode_outcome(OrderOutcome(order=of, order_offset=offset, result=result, text=text, at=at))
    return OutputRecord(number, Channel.ORDER_OUTCOMES, b"unit", ((ORDER_PARTITION, str(partition).encode()),), value)


class Reading:
    """A source that is polled as an owner does: each partition from where its last batch ended."""

    def __init__(self, source: OrderSource, *partitions: Partition, at: int = 0) -> None:
        self.source = source
        self.next_offsets = dict.fromkeys(partitions, at)
        self.records: dict[Partition, list[OrderRecord]] = {each: [] for each in partitions}

    def poll(self, most: int = 100) -> None:
        for partition, batch in self.source.poll(self.next_offsets, most).items():
            assert len(batch.records) <= most
            self.records[partition] += batch.records
            self.next_offsets[partition] = batch.next_offset

    def poll_until(self, count: int, most: int = 100) -> None:
        """Poll until so many records are there, and a few times more: there must not be others."""

        def has_read() -> bool:
            self.poll(most)
            return sum(map(len, self.records.values())) >= count

        wait_until(has_read, f"{count} records")
        for _ in range(3):
            self.poll(most)
        assert sum(map(len, self.records.values())) == count

    def ids(self, partition: Partition) -> list[str]:
        return [decode_order(each.value).id for each in self.records[partition]]


def is_readable(record: OrderRecord) -> bool:
    try:
        decode_order(record.value)
    except OrderUnreadable:
        return False
    return True


class OrdersContract:
    @pytest.fixture
    def source(self, harness: Harness):
        with closing(harness.source()) as source:
            yield source

    @pytest.fixture
    def book(self, harness: Harness):
        with closing(harness.book()) as book:
            yield book

    def test_a_log_without_orders_is_empty(self, harness: Harness, source: OrderSource, book: OrderBook):
        first = harness.partitions[0]
        assert source.bounds(first) == range(0)
        assert source.poll({first: 0}, 10) == {}
        assert list(source.find_without_outcome(first)) == []
        assert list(book.orders(harness.partitions, 0)) == list(book.outcomes(harness.partitions, 0)) == []

    def test_nothing_is_read_of_no_partition(self, source: OrderSource):
        assert source.poll({}, 10) == {}

    def test_what_is_appended_is_read_once_at_its_offset(self, harness: Harness, source: OrderSource, book: OrderBook):
        first, second = harness.partitions
        reading = Reading(source, first, second)
        reading.poll()
        offsets = [book.append(first, order("a")), book.append(first, order("b"))]
        other = book.append(second, order("c", OrderKind.PAUSE, None))
        reading.poll_until(3)
        assert (reading.ids(first), reading.ids(second)) == (["a", "b"], ["c"])
        assert [each.offset for each in reading.records[first]] == offsets
        assert [each.offset for each in reading.records[second]] == [other]
        assert decode_order(reading.records[first][0].value) == order("a")
        assert reading.next_offsets == {each: source.bounds(each).stop for each in harness.partitions}

    def test_a_poll_returns_no_more_than_it_is_asked_for(self, harness: Harness, source: OrderSource, book: OrderBook):
        first = harness.partitions[0]
        for number in range(7):
            book.append(first, order(str(number)))
        reading = Reading(source, first)
        reading.poll_until(7, most=2)
        assert reading.ids(first) == [str(number) for number in range(7)]

    def test_another_process_goes_on_where_the_last_one_ended(self, harness: Harness, source: OrderSource, book: OrderBook):
        first = harness.partitions[0]
        book.append(first, order("a"))
        reading = Reading(source, first)
        reading.poll_until(1)
        book.append(first, order("b"))
        with closing(harness.source()) as successor:
            later = Reading(successor, first, at=reading.next_offsets[first])
            later.poll_until(1)
            assert later.ids(first) == ["b"]

    def test_partitions_that_come_and_go_keep_their_offsets(self, harness: Harness, source: OrderSource, book: OrderBook):
        first, second = harness.partitions
        for partition in harness.partitions:
            book.append(partition, order(f"a{partition.number}"))
        alone = Reading(source, first)
        alone.poll_until(1)
        both = Reading(source, first, second)
        both.next_offsets[first] = alone.next_offsets[first]
        both.poll_until(1)
        for partition in harness.partitions:
            book.append(partition, order(f"b{partition.number}"))
        rest = Reading(source, second)
        rest.next_offsets = {second: both.next_offsets[second]}
        rest.poll_until(1)
        again = Reading(source, first, second)
        again.next_offsets = {first: both.next_offsets[first], second: rest.next_offsets[second]}
        again.poll_until(1)
        assert (both.ids(second), rest.ids(second), again.ids(first)) == (["a1"], ["b1"], ["b0"])

    def test_an_offset_that_is_given_again_is_read_again(self, harness: Harness, source: OrderSource, book: OrderBook):
        """The owner's commit failed, so it goes on where its header stands."""
        first = harness.partitions[0]
        book.append(first, order("a"))
        for _ in range(2):
            reading = Reading(source, first)
            reading.poll_until(1)

    def test_an_offset_beyond_the_end_goes_on_at_the_start(self, harness: Harness, source: OrderSource, book: OrderBook):
        first = harness.partitions[0]
        book.append(first, order("new"))
        reading = Reading(source, first, at=1_000_000)
        reading.poll_until(1)
        assert reading.ids(first) == ["new"]

    def test_a_poll_does_not_wait_for_orders(self, harness: Harness, source: OrderSource):
        """The workers poll in each cycle. A fetch that the broker keeps open for a second must not cost that second."""
        reading = Reading(source, *harness.partitions)
        reading.poll()
        begun = monotonic()
        for _ in range(100):
            reading.poll()
        assert monotonic() - begun < 60

    def test_a_record_that_is_no_order_is_read_as_one_that_cannot_be_read(
        self, harness: Harness, source: OrderSource, book: OrderBook
    ):
        first = harness.partitions[0]
        too_long = encode_order(order("long")).replace(b'"test"', b'"%b"' % (b"x" * LONGEST_BYTES))
        values = [b"\xff no JSON", b"{}", b"[1, 2", too_long, b'"text"']
        for value in values:
            harness.put(first, value)
        book.append(first, order("a"))
        reading = Reading(source, first)
        reading.poll_until(len(values) + 1)
        assert [is_readable(each) for each in reading.records[first]] == [False] * len(values) + [True]
        assert [given.order.id for given in book.orders([first], 0)] == ["a"]

    def test_orders_of_writers_at_the_same_time_are_all_there(self, harness: Harness, source: OrderSource):
        first = harness.partitions[0]

        def write(writer: int) -> list[int]:
            with closing(harness.book()) as book:
                return [book.append(first, order(f"{writer}-{number}")) for number in range(10)]

        with ThreadPoolExecutor(3) as threads:
            offsets = [offset for each in threads.map(write, range(3)) for offset in each]
        reading = Reading(source, first)
        reading.poll_until(30)
        assert sorted(offsets) == [each.offset for each in reading.records[first]]
        assert sorted(reading.ids(first)) == sorted(f"{writer}-{number}" for writer in range(3) for number in range(10))

    def test_the_orders_without_an_outcome_are_found(self, harness: Harness, source: OrderSource, book: OrderBook):
        """Those that are no orders but proposals need none. A record that cannot be read does."""
        first, second = harness.partitions
        done, waiting = book.append(first, order("done")), book.append(first, order("waiting"))
        book.append(first, replace(order("proposal"), stage=Stage.PROPOSED))
        harness.put(first, b"known to be unreadable")
        harness.put(first, b"unreadable")
        book.append(second, order("of the other partition"))
        reading = Reading(source, first)
        reading.poll_until(5)
        known, unknown = [each.offset for each in reading.records[first]][-2:]
        outcomes = (outcome(1, first, order("done"), done), outcome(2, first, None, known))
        harness.publish(first, *outcomes, outcome(3, first, order("of a log before this one"), waiting))
        assert [each.offset for each in source.find_without_outcome(first)] == [waiting, unknown]
        assert [decode_order(each.value).id for each in source.find_without_outcome(second)] == ["of the other partition"]

    def test_orders_and_outcomes_are_read_by_partition_and_time(self, harness: Harness, book: OrderBook):
        first, second = harness.partitions
        early = order("early", at=NOW - 3_600_000)
        for partition, each in ((first, early), (second, order("second")), (first, order("late", at=NOW + 1))):
            book.append(partition, each)
        harness.publish(
            first,
            outcome(1, first, early, 0, at=NOW - 3_600_000),
            outcome(2, first, order("late", at=NOW + 1), 7, "released", NOW + 2),
        )
        assert [(each.partition, each.order.id) for each in book.orders([first, second], NOW)] == [
            (second, "second"),
            (first, "late"),
        ]
        assert [each.order.id for each in book.orders([first], 0)] == ["early", "late"]
        assert [(each.partition, each.outcome.text) for each in book.outcomes([first, second], NOW)] == [(first, "released")]
        assert [each.outcome.order_offset for each in book.outcomes([first], 0)] == [0, 7]
        assert list(book.outcomes([second], 0)) == []
