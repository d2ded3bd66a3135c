"""A partition that is delivered straight from its topic: order within a lane, positions, what is done ahead, and its bounds."""

from random import Random

import pytest

from connectors.port import Channel, OutputRecord
from delivery.direct.open_record import OpenRecord
from delivery.direct.partition import DirectPartition
from delivery.direct.position_metadata import PositionMetadata, find_metadata
from domain.headers import Way
from domain.record import Origin, Partition, Record
from guardian.done_offsets import MOST_CHARACTERS, DoneOffsets

P = Partition("T", 0)


def opened(offset: int, lane: str, due_at: int = 0, value: bytes = b"12345678") -> OpenRecord:
    origin = Origin(P, offset)
    record = Record(origin, value, lane.encode())
    return OpenRecord(record, Way(origin), lane, lane.encode(), str(offset), offset, due_at)


def partition(offset: int = 0, metadata: PositionMetadata | None = None, blocked_bytes: int = 1 << 30) -> DirectPartition:
    return DirectPartition(P, offset, metadata or PositionMetadata(DoneOffsets(offset)), blocked_bytes)


def offsets(records: list[OpenRecord]) -> list[int]:
    return [each.offset for each in records]


def test_one_record_of_a_lane_is_due_at_a_time_and_lanes_do_not_wait_for_each_other() -> None:
    state = partition()
    records = [opened(0, "a"), opened(1, "a"), opened(2, "b"), opened(3, "a")]
    state.read(records, 4)
    first = state.take_due(0, 10)
    assert offsets(first) == [0, 2]
    assert state.take_due(0, 10) == []
    state.end(records[2])
    state.again(records[0], 50)
    assert (state.find_next_due(), state.take_due(49, 10)) == (50, [])
    assert offsets(state.take_due(50, 10)) == [0]
    state.end(records[0])
    assert offsets(state.take_due(50, 10)) == [1]


def test_the_position_never_passes_an_open_record_and_lists_what_is_done_beyond_it() -> None:
    state = partition(10)
    records = [opened(number, str(number)) for number in range(10, 16)]
    state.read(records, 17)
    state.take_due(0, 10)
    for number in (1, 2, 4):
        state.end(records[number])
    output = state.output()
    metadata = find_metadata(output.position.offset, output.position.metadata)
    assert output.position.offset == 10
    assert metadata is not None
    again = partition(10, metadata)
    assert [number for number in range(10, 17) if again.is_done(number)] == [11, 12, 14, 16]
    state.end(records[0])
    assert state.position == 13


def test_what_leaves_leaves_with_the_position_that_passes_it_and_stays_until_it_has_left() -> None:
    state = partition()
    record, letter = opened(0, "a"), OutputRecord(1, Channel.DEAD_LETTERS, b"a", (), b"")
    state.read([record], 1)
    state.take_due(0, 1)
    state.end(record, letter)
    first = state.output()
    assert (first.records, first.position.offset) == ((letter,), 1)
    assert state.output().records == (letter,)
    state.published(first)
    assert state.output().records == ()


@pytest.mark.parametrize("seed", range(20))
def test_any_pattern_of_what_is_done_fits_into_the_metadata_as_long_as_there_was_room_to_read(seed: int) -> None:
    chance = Random(seed)
    state = partition(1_000_000)
    records: list[OpenRecord] = []
    share = chance.random()
    while state.pause is None:
        most = min(state.room, chance.randrange(1, 500))
        step = chance.choice([1, 1, 1, 2, 50])
        news = [opened(state.read_to + step * number, f"{state.read_to}-{number}") for number in range(most)]
        state.read(news, news[-1].offset + 1)
        records += news
        for each in [one for one in news if chance.random() < share and one is not records[0]]:
            state.end(each)
        assert len(state.output().position.metadata) < MOST_CHARACTERS + 60
    left = [each for each in records[1:] if state.find_open(each.offset)]
    chance.shuffle(left)
    for number, each in enumerate(left):
        state.end(each)
        if number % 500 == 0:
            assert len(state.output().position.metadata) < MOST_CHARACTERS + 60
    output = state.output()
    metadata = find_metadata(output.position.offset, output.position.metadata)
    assert metadata is not None
    assert output.position.offset == 1_000_000
    assert metadata.done.undone == (range(1_000_000, 1_000_001),)


def test_too_many_open_bytes_pause_it_and_their_end_lets_it_go_on() -> None:
    state = partition(blocked_bytes=100)
    records = [opened(number, "a", value=b"x" * 40) for number in range(3)]
    state.read(records, 3)
    assert "123 bytes behind its position are not delivered yet" in (state.pause or "")
    state.take_due(0, 1)
    state.end(records[0])
    assert state.pause is None


def test_a_record_that_waits_can_be_recalled_and_one_under_way_cannot() -> None:
    state = partition()
    records = [opened(0, "a"), opened(1, "b", due_at=90)]
    state.read(records, 2)
    assert offsets(state.take_due(0, 1)) == [0]
    assert [state.recall(each) for each in records] == [False, True]
    assert state.find_next_due() is None
    state.again(records[0], 0)
    assert state.recall(records[0])


def test_what_a_position_keeps_is_read_again_as_it_was_written() -> None:
    metadata = PositionMetadata(DoneOffsets(20, (range(7, 9),)), skips_all=True, orders_read_to=12)
    assert find_metadata(7, metadata.encode(7)) == metadata
    assert find_metadata(7, "") is None
    assert find_metadata(7, "direct/2 - 0 ") is None
    assert find_metadata(7, PositionMetadata(DoneOffsets(7)).encode(7)) == PositionMetadata(DoneOffsets(7))
