"""A partition that is delivered straight from its topic: order within a lane, positions, what is done ahead, and its bounds."""

from random import Random

import msgspec
import pytest

from guardian.headers import Way
from guardian.ports import Channel, OutputRecord
from guardian.positions import MAX_CHARACTERS, DoneOffsets, encode
from notification_service.delivery.direct.core.decision import OpenRecord
from notification_service.delivery.direct.core.partition import DirectPartition
from notification_service.delivery.direct.core.position_metadata import PositionMetadata, find_metadata, fitted
from resequencer.record import Origin, Partition, Record

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


def test_a_record_that_waits_is_taken_next_when_it_is_to_be_tried_now_and_one_that_is_called_is_not() -> None:
    state = partition()
    records = [opened(number, lane) for number, lane in enumerate("abc")]
    state.read(records, 3)
    for each in state.take_due(0, 3):
        each.error = "HTTP 500"
        state.again(each, 1_000)
    assert state.retry_now(records[1], 5)
    assert offsets(state.take_due(5, 9)) == [1]
    assert not state.retry_now(records[1], 5), "a call is under way"
    state.again(records[1], 2_000)
    state.retry_first(6)
    assert offsets(state.take_due(6, 9)) == [0]
    state.retry_first(7)
    assert offsets(state.take_due(7, 9)) == [1], "the first that waits"
    assert offsets(state.take_due(1_000, 9)) == [2], "each record is taken once"


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
    assert state.position == 0, "nothing has left"
    first = state.output()
    assert (first.records, first.position.offset) == ((letter,), 1)
    assert state.output().records == (letter,)
    state.published(first)
    assert state.output().records == ()


def test_the_next_of_a_lane_waits_until_the_dead_letter_of_its_head_has_left() -> None:
    state = partition()
    records, letter = [opened(0, "a"), opened(1, "a")], OutputRecord(1, Channel.DEAD_LETTERS, b"a", (), b"")
    state.read(records, 2)
    state.take_due(0, 1)
    state.end(records[0], letter)
    assert state.take_due(0, 9) == []
    output = state.output()
    assert state.take_due(0, 9) == [], "it is not published yet"
    state.published(output)
    assert offsets(state.take_due(0, 9)) == [1]


def test_so_much_leaves_at_once_and_the_position_does_not_pass_the_rest() -> None:
    state = partition()
    records = [opened(number, str(number)) for number in range(1_200)]
    state.read(records, 1_200)
    for each in state.take_due(0, 2_000):
        state.end(each, OutputRecord(each.offset + 1, Channel.DEAD_LETTERS, b"a", (), b"12"))
    sizes = []
    while state.has_news:
        output = state.output()
        sizes.append((len(output.records), output.position.offset))
        state.published(output)
    assert sizes == [(500, 500), (500, 1_000), (200, 1_200)]


def test_an_order_is_passed_by_the_position_with_which_its_outcome_leaves_and_never_without_what_it_ordered() -> None:
    state = partition()
    records = [opened(number, str(number)) for number in range(501)]
    state.read(records, 501)
    due = state.take_due(0, 2_000)
    for each in due[:499]:
        state.end(each, OutputRecord(each.offset + 1, Channel.DEAD_LETTERS, b"a", (), b""))
    state.pass_order(8, OutputRecord(8, Channel.ORDER_OUTCOMES, b"o", (), b""))
    state.end(due[499], OutputRecord(500, Channel.DEAD_LETTERS, b"a", (), b""))
    state.pass_order(9, OutputRecord(9, Channel.ORDER_OUTCOMES, b"o", (), b""))
    state.end(due[500], OutputRecord(501, Channel.DEAD_LETTERS, b"a", (), b""))
    outputs = []
    while state.has_news:
        output = state.output()
        kept = find_metadata(output.position.offset, output.position.metadata)
        assert kept is not None
        outputs.append((len(output.records), output.position.offset, kept.orders_read_to))
        state.published(output)
    assert outputs == [(501, 500, 8), (2, 501, 9)]


@pytest.mark.parametrize("gap", [1, 2, 3, 5, 10, 50, 200, 5_000])
def test_what_is_done_can_be_listed_however_far_apart_the_offsets_lie_behind_a_long_dense_part(gap: int) -> None:
    state = partition()
    while state.pause is None:
        step = 1 if state.read_to < 18_000 else gap
        news = [opened(state.read_to + step * number, f"{state.read_to}-{number}") for number in range(min(500, state.readable))]
        state.read(news, news[-1].offset + 1)
        for each in news[1::2]:
            state.end(each)
    output = state.output()
    assert len(output.position.metadata) < MAX_CHARACTERS + 60
    kept = find_metadata(output.position.offset, output.position.metadata)
    assert kept is not None
    assert sum(map(len, kept.done.undone)) == state.open_count, "nothing that is done is left out"


def test_a_list_that_is_too_long_all_the_same_is_committed_in_part() -> None:
    done = DoneOffsets(80_001, tuple(range(at, at + 1) for at in range(0, 80_000, 20)))
    kept = fitted(0, done)
    assert MAX_CHARACTERS - 8 < len(encode(0, kept)) <= MAX_CHARACTERS
    assert done.undone[: len(kept.undone)] == kept.undone
    assert all(done.is_done(each) for each in range(80_001) if kept.is_done(each))


def test_what_is_read_for_the_second_time_needs_no_room() -> None:
    before = partition()
    while before.pause is None:
        news = [opened(before.read_to + number, f"{before.read_to}-{number}") for number in range(min(500, before.readable))]
        before.read(news, news[-1].offset + 1)
        for each in news[1::2]:
            before.end(each)
    kept = find_metadata(0, before.output().position.metadata)
    assert kept is not None
    again = partition(0, kept)
    again.read([opened(0, "0")], kept.done.end - 10)
    assert again.pause is None, "the last ten are not done, and must be read"


@pytest.mark.parametrize("seed", [*range(20), 215])
def test_any_pattern_of_what_is_done_fits_into_the_metadata_as_long_as_there_was_room_to_read(seed: int) -> None:
    chance = Random(seed)
    state = partition(1_000_000)
    records: list[OpenRecord] = []
    share = chance.random()
    while state.pause is None:
        most = min(state.readable, chance.randrange(1, 500))
        step = chance.choice([1, 1, 1, 2, 50])
        news = [opened(state.read_to + step * number, f"{state.read_to}-{number}") for number in range(most)]
        state.read(news, news[-1].offset + 1)
        records += news
        for each in [one for one in news if chance.random() < share and one is not records[0]]:
            state.end(each)
        assert len(state.output().position.metadata) < MAX_CHARACTERS + 60
    left = [each for each in records[1:] if state.find_open(each.offset)]
    chance.shuffle(left)
    for number, each in enumerate(left):
        state.end(each)
        if number % 500 == 0:
            assert len(state.output().position.metadata) < MAX_CHARACTERS + 60
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
    assert state.recall(records) == [records[1]]
    assert state.find_next_due() is None
    state.again(records[0], 0)
    assert state.recall(records) == [records[0]]


def test_blocked_are_the_open_records_with_an_error_in_the_order_in_which_they_were_read() -> None:
    state = partition()
    records = [opened(number, str(number)) for number in range(4)]
    state.read(records, 4)
    for each in reversed(state.take_due(0, 9)):
        each.error = "HTTP 500" if each.offset != 2 else None
        state.again(each, 50)
    assert (state.blocked_count, offsets(state.blocked(2)), offsets(state.blocked())) == (3, [0, 1], [0, 1, 3])
    state.end(state.take_due(50, 9)[-1])
    assert offsets(state.blocked()) == [1, 3]


def test_the_oldest_is_the_first_record_that_is_open_also_when_later_ones_are_done() -> None:
    state = partition()
    records = [opened(number, str(number)) for number in range(3)]
    for each in records:
        each.record = msgspec.structs.replace(each.record, written_at=100 + each.offset)
    assert state.oldest_at is None
    state.read(records, 3)
    due, found = state.take_due(0, 9), []
    for number in (1, 0, 2):
        state.end(due[number])
        found.append(state.oldest_at)
    assert found == [100, 102, None]


def test_what_a_position_keeps_is_read_again_as_it_was_written() -> None:
    metadata = PositionMetadata(DoneOffsets(20, (range(7, 9),)), skips_all=True, orders_read_to=12)
    assert find_metadata(7, metadata.encode(7)) == metadata
    assert find_metadata(7, "") is None
    assert find_metadata(7, "direct/2 - 0 ") is None
    assert find_metadata(7, PositionMetadata(DoneOffsets(7)).encode(7)) == PositionMetadata(DoneOffsets(7))
