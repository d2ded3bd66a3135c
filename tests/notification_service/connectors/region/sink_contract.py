"""The contract of sinks (notification_service/connectors/region_port.py), as tests that each sink runs on the real thing.

A sink's test file derives from `SinkContract` and gives the fixture `harness`. What a sink cannot do by its capabilities is left
out.
"""

from collections.abc import Sequence
from typing import Protocol

import pytest

from guardian.ports import Channel, OutputRecord, PartitionOutput, Position, PublishRefused
from notification_service.connectors.region_port import Sink
from resequencer.record import Headers, Partition

PARTITIONS = (Partition("EVENTS", 0), Partition("EVENTS", 1))


class Left(Protocol):
    """A published record as its reader sees it."""

    key: bytes | None
    value: bytes
    headers: Headers


class SinkHarness(Protocol):
    """Makes sinks on one place, which is empty at first. With `fences` two sinks may be open at once."""

    fences: bool

    def make(self) -> Sink: ...

    def left(self, channel: Channel) -> Sequence[Left]:
        """Return all that a reader finds, in the order of the sink; in the order of the partitions if it has several."""
        ...


def notifications(first: int, count: int, text: str = "n") -> tuple[OutputRecord, ...]:
    """Return notifications with the numbers from `first` on."""
    return tuple(notification(number, text) for number in range(first, first + count))


def notification(number: int, text: str = "n") -> OutputRecord:
    headers = (("notification-id", b"%d" % number),)
    return OutputRecord(number, Channel.NOTIFICATIONS, b"unit", headers, f'{{"{text}":{number}}}'.encode())


def output(partition: Partition, records: tuple[OutputRecord, ...], offset: int) -> PartitionOutput:
    published = records[-1].number if records else 0
    return PartitionOutput(partition, records, Position(offset, f'["t",{offset},{published}]'))


class SinkContract:
    """The tests of the contract. Derive from it in a file of its own, with the fixture `harness`."""

    @pytest.fixture
    def made(self, harness: SinkHarness):
        """Makes sinks, which are closed at the end; those before at once, where no two may be open."""
        alive: list[Sink] = []

        def make() -> Sink:
            while alive and not harness.fences:
                alive.pop().close()
            alive.append(harness.make())
            return alive[-1]

        yield make
        while alive:
            alive.pop().close()

    def test_a_sink_through_which_nothing_left_has_no_position(self, made) -> None:
        sink = made()
        assert [sink.position(each) for each in PARTITIONS] == [None, None]

    def test_what_is_published_is_there_with_its_key_headers_and_value_in_order(self, harness: SinkHarness, made) -> None:
        sink, one = made(), PARTITIONS[0]
        sink.position(one)
        headers = (("notification-id", b"N1"), ("event-name", "Zürich".encode()))
        letter = OutputRecord(2, Channel.DEAD_LETTERS, None, (("dead-letter-reason", b"undecodable"),), b"\xff\x00")
        records = (
            OutputRecord(1, Channel.NOTIFICATIONS, b"unit", headers, b'{"a":1}'),
            letter,
            OutputRecord(3, Channel.NOTIFICATIONS, b"unit", (), '{"a":"ü"}'.encode()),
        )
        sink.publish([output(one, records, 1)])
        left = harness.left(Channel.NOTIFICATIONS)
        assert [(each.key, each.value) for each in left] == [(b"unit", b'{"a":1}'), (b"unit", '{"a":"ü"}'.encode())]
        assert tuple(left[0].headers) == headers
        (dead,) = harness.left(Channel.DEAD_LETTERS)
        assert (dead.key, dead.value, tuple(dead.headers)) == (None, letter.value, letter.headers)

    def test_a_publication_beyond_any_window_leaves_whole_and_in_order(self, harness: SinkHarness, made) -> None:
        sink, one = made(), PARTITIONS[0]
        sink.position(one)
        records = notifications(1, 1_500)
        sink.publish([output(one, records, 1_500)])
        assert [each.value for each in harness.left(Channel.NOTIFICATIONS)] == [each.value for each in records]

    def test_positions_are_there_for_the_next_with_the_highest_number(self, made) -> None:
        sink = made()
        if not sink.capabilities.remembers:
            return
        one, two = PARTITIONS
        for each in PARTITIONS:
            sink.position(each)
        sink.publish([output(one, notifications(1, 3), 7), output(two, (), 0)])
        again = made()
        assert again.position(one) == Position(7, '["t",7,3]', highest=3)
        assert again.position(two) == Position(0, '["t",0,0]', highest=0)

    def test_a_position_alone_leaves_the_highest_number_as_it_is(self, harness: SinkHarness, made) -> None:
        sink, one = made(), PARTITIONS[0]
        sink.position(one)
        sink.publish([output(one, notifications(1, 1_001), 1)])
        for offset in (2, 3):
            sink.publish([PartitionOutput(one, (), Position(offset, f'["t",{offset},1001]'))])
        if sink.capabilities.remembers:
            assert sink.position(one) == Position(3, '["t",3,1001]', highest=1_001)
        assert len(harness.left(Channel.NOTIFICATIONS)) == 1_001

    @pytest.mark.parametrize("metadata", ["", '["t",1,2]', "é" * 1_000, "x" * 4_000])
    def test_metadata_comes_back_as_it_was_given(self, made, metadata: str) -> None:
        sink, one = made(), PARTITIONS[0]
        if not sink.capabilities.remembers:
            return
        sink.position(one)
        sink.publish([PartitionOutput(one, (), Position(0, metadata))])
        assert made().position(one) == Position(0, metadata)

    def test_records_that_come_again_are_passed_over_by_their_numbers(self, harness: SinkHarness, made) -> None:
        sink, one = made(), PARTITIONS[0]
        if not sink.capabilities.remembers:
            return
        sink.position(one)
        sink.publish([output(one, notifications(1, 2), 2)])
        sink.publish([output(one, notifications(1, 2), 2)])
        again = made()
        again.position(one)
        again.publish([output(one, notifications(1, 4, "again"), 4)])
        left = [each.value for each in harness.left(Channel.NOTIFICATIONS)]
        assert left == [b'{"n":1}', b'{"n":2}', b'{"again":3}', b'{"again":4}']

    def test_a_call_that_is_made_again_sends_nothing_again(self, harness: SinkHarness, made) -> None:
        """As while another sink does not answer: the region publishes through all of them again and again."""
        sink, one = made(), PARTITIONS[0]
        sink.position(one)
        for _ in range(3):
            sink.publish([output(one, notifications(1, 2), 2)])
        sink.publish([output(one, notifications(1, 3), 3)])
        assert [each.value for each in harness.left(Channel.NOTIFICATIONS)] == [b'{"n":1}', b'{"n":2}', b'{"n":3}']

    def test_after_a_takeover_a_sink_that_does_not_remember_sends_what_is_pending_again(self, harness: SinkHarness, made) -> None:
        sink, one = made(), PARTITIONS[0]
        if sink.capabilities.remembers:
            return
        sink.position(one)
        sink.publish([output(one, notifications(1, 1), 1)])
        assert sink.position(one) is None
        sink.publish([output(one, notifications(1, 2), 2)])
        left = [each.value for each in harness.left(Channel.NOTIFICATIONS)]
        assert left == [b'{"n":1}', b'{"n":1}', b'{"n":2}']

    def test_numbers_of_one_partition_say_nothing_of_another(self, harness: SinkHarness, made) -> None:
        sink = made()
        one, two = PARTITIONS
        for each in PARTITIONS:
            sink.position(each)
        sink.publish([output(one, notifications(1, 3, "one"), 3)])
        sink.publish([output(two, notifications(1, 2, "two"), 2)])
        left = sorted(each.value for each in harness.left(Channel.NOTIFICATIONS))
        assert left == [b'{"one":1}', b'{"one":2}', b'{"one":3}', b'{"two":1}', b'{"two":2}']

    def test_after_a_takeover_the_earlier_owner_is_refused_and_the_new_one_goes_on(self, harness: SinkHarness, made) -> None:
        if not harness.fences:
            return
        earlier, one = made(), PARTITIONS[0]
        earlier.position(one)
        earlier.publish([output(one, notifications(1, 1), 1)])
        later = made()
        assert later.position(one) == Position(1, '["t",1,1]', highest=1)
        for _ in range(2):
            with pytest.raises(PublishRefused):
                earlier.publish([output(one, notifications(2, 1, "zombie"), 2)])
        later.publish([output(one, notifications(2, 1), 2)])
        assert [each.value for each in harness.left(Channel.NOTIFICATIONS)] == [b'{"n":1}', b'{"n":2}']
        assert earlier.position(one) == Position(2, '["t",2,2]', highest=2)

    def test_a_partition_that_another_owns_keeps_nothing_of_the_same_publication(self, harness: SinkHarness, made) -> None:
        sink = made()
        if not (harness.fences and sink.capabilities.is_transactional):
            return
        one, two = PARTITIONS
        for each in PARTITIONS:
            sink.position(each)
        made().position(two)
        with pytest.raises(PublishRefused):
            sink.publish([output(one, notifications(1, 1), 1), output(two, notifications(1, 1), 1)])
        assert harness.left(Channel.NOTIFICATIONS) == []
        sink.publish([output(one, notifications(1, 1), 1)])
        assert len(harness.left(Channel.NOTIFICATIONS)) == 1

    def test_it_has_nothing_to_say_as_long_as_all_is_well(self, made) -> None:
        assert tuple(made().notes) == ()
