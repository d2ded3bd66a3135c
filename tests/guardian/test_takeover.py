"""The takeover: steps 7 to 12 of docs/decisions/0004-exactly-once.md, row by row."""

import pytest
from msgspec.structs import replace

from guardian.ports import Position, TransportStatus
from guardian.positions import DoneOffsets, encode
from guardian.takeover import Metadata, Takeover, find_metadata, last_commit, plan_takeover
from resequencer.storage_port import Header, Pending

LOG = range(100, 900)
EMPTY = Header("new", 0)
HEADER = Header("new", 0, next_offset=500, highest_number=12, history=(("older", 3), ("old", 7)))
PENDING = tuple(Pending(number, b"%d" % number) for number in (10, 11, 12))


def position(token: str = "old", commit: int = 7, published: int = 10, beyond: tuple[int, ...] = ()) -> Position:
    return Position(450, Metadata(token, commit, published).encode(), frozenset(beyond))


def plan(
    header: Header = HEADER, at: Position | None = None, pending: tuple[Pending, ...] = PENDING, *, is_durable: bool = True
) -> Takeover:
    return plan_takeover(header, pending, at, LOG, is_durable=is_durable)


def numbers(planned: Takeover) -> list[int]:
    return [each.number for each in planned.pending]


def test_no_position_and_an_empty_header_begin_at_the_start_of_the_log() -> None:
    assert plan(EMPTY, None, ()) == Takeover(100, 0, 0, is_new=True)


def test_a_known_commit_goes_on_where_the_storage_read_to() -> None:
    planned = plan(at=position())
    assert (planned.offset, planned.highest_number) == (500, 12)
    assert (planned.must_heal, planned.is_new) == (False, False)


def test_what_the_position_does_not_count_as_published_is_still_to_leave() -> None:
    assert numbers(plan(at=position(published=10))) == [11, 12]
    assert numbers(plan(at=position(published=12))) == []


def test_what_left_beyond_the_position_leaves_no_more() -> None:
    planned = plan(at=position(published=9, beyond=(10, 12)))
    assert numbers(planned) == [11]
    assert planned.must_heal is False


def test_numbers_go_on_behind_everything_that_left() -> None:
    assert plan(at=position(published=40)).highest_number == 40
    assert plan(at=position(beyond=(11, 99))).highest_number == 99


@pytest.mark.parametrize(("token", "commit"), [("older", 3), ("older", 1), ("old", 7), ("old", 1)])
def test_a_commit_of_an_earlier_owner_is_known(token: str, commit: int) -> None:
    assert plan(at=position(token, commit)).must_heal is False


@pytest.mark.parametrize(("token", "commit"), [("older", 4), ("old", 8), ("other_owner", 1), ("new", 1)])
def test_a_commit_that_the_storage_has_not_made_means_that_it_forgot(token: str, commit: int) -> None:
    assert plan(at=position(token, commit)).must_heal is True


@pytest.mark.parametrize("published", [9, 11, 12, 40])
def test_of_a_storage_that_forgot_all_that_is_pending_leaves_whatever_numbers_were_published(published: int) -> None:
    """An owner of before, whom the storage that came back still knew, may have given out the same numbers once more."""
    planned = plan(at=position("other_owner", published=published))
    assert (planned.must_heal, numbers(planned)) == (True, [10, 11, 12])
    assert plan(at=position("other_owner", published=9, beyond=(10, 12))).pending == PENDING


def test_the_beginning_is_known_to_every_storage() -> None:
    """Tokens of owners that committed nothing are not remembered for long."""
    assert plan(at=Position(100, Metadata("long ago", 0, 0).encode())).must_heal is False
    assert plan(EMPTY, Position(100, Metadata("long ago", 0, 0).encode()), ()).must_heal is False


def test_an_empty_storage_from_which_something_left_has_forgotten() -> None:
    planned = plan(EMPTY, Position(100, Metadata("long ago", 0, 0).encode(), frozenset({1})), ())
    assert (planned.must_heal, planned.heal_offset, planned.highest_number) == (True, 900, 1)


@pytest.mark.parametrize(
    "at",
    [replace(position(published=10), highest=13), position(published=10, beyond=(13,))],
    ids=["a sink ahead", "lines beyond"],
)
def test_a_number_that_left_and_that_the_storage_has_not_given_out_means_that_it_forgot(at: Position) -> None:
    """The storage went back to the very commit that the position names, and a sink had more."""
    planned = plan(at=at)
    assert (planned.must_heal, planned.heal_offset, planned.highest_number) == (True, 900, 13)


def test_a_sink_that_is_ahead_with_numbers_that_the_storage_knows_passes_them_over() -> None:
    planned = plan(at=replace(position(published=10), highest=12))
    assert (planned.must_heal, planned.must_mark, numbers(planned)) == (False, False, [11, 12])


def test_a_sink_without_a_marker_gets_all_that_is_pending_marked_and_nothing_is_healed() -> None:
    """It may be behind the position, which another sink tells."""
    planned = plan(at=replace(position(published=12), is_whole=False))
    assert (planned.must_mark, planned.must_heal, planned.heal_offset) == (True, False, 0)
    assert numbers(planned) == [10, 11, 12]


def test_a_sink_without_a_marker_gets_all_that_is_pending_of_a_storage_that_has_forgotten() -> None:
    planned = plan(at=replace(position("other_owner", published=12), is_whole=False))
    assert (planned.must_heal, planned.must_mark, numbers(planned)) == (True, False, [10, 11, 12])


def test_without_pending_output_a_new_sink_marks_nothing() -> None:
    assert plan(at=replace(position(published=12), is_whole=False), pending=()).must_mark is False


FORGETTING = TransportStatus(remembers=False)


def test_without_any_memory_all_that_is_pending_leaves_again_and_the_storage_says_where_to_go_on() -> None:
    planned = plan_takeover(HEADER, PENDING, None, range(600, 900), is_durable=True, standing=FORGETTING)
    assert (planned.offset, numbers(planned), planned.must_heal) == (500, [10, 11, 12], False)


def test_without_any_memory_an_empty_storage_is_new() -> None:
    assert plan_takeover(EMPTY, (), None, LOG, is_durable=True, standing=FORGETTING).is_new is True


QUEUE, NO_LOG = TransportStatus(window=50), range(0)


def test_a_queue_goes_on_with_offsets_that_were_never_used_and_marks_what_may_come_again() -> None:
    planned = plan_takeover(EMPTY, (), position(), NO_LOG, is_durable=True, standing=QUEUE)
    assert (planned.must_heal, planned.offset, planned.heal_offset) == (True, 500, 550)


def test_a_queue_goes_on_behind_the_offsets_of_a_storage_without_positions() -> None:
    planned = plan_takeover(HEADER, PENDING, None, NO_LOG, is_durable=True, standing=QUEUE)
    assert (planned.must_heal, planned.offset, planned.heal_offset) == (True, 550, 600)


def test_a_queue_whose_storage_has_lost_nothing_goes_on_at_its_next_offset() -> None:
    planned = plan_takeover(HEADER, PENDING, position(), NO_LOG, is_durable=True, standing=QUEUE)
    assert (planned.must_heal, planned.offset, planned.heal_offset, planned.gone) == (False, 500, 0, range(0))


def test_a_queue_has_no_beginning_before_which_records_could_be_gone() -> None:
    """After a heal the position may be a window beyond what was read."""
    planned = plan_takeover(HEADER, PENDING, position(), range(700, 700), is_durable=True, standing=QUEUE)
    assert (planned.must_heal, planned.offset, planned.gone) == (False, 500, range(0))


def test_a_deleted_database_is_healed_from_the_start_of_the_log() -> None:
    planned = plan(EMPTY, position(), ())
    assert planned == Takeover(100, 10, 450, must_heal=True)


def test_a_deleted_database_after_which_something_left_may_repeat_all_there_is() -> None:
    """It is unknown which records caused the output beyond the position, so everything up to the end of the log may repeat."""
    planned = plan(EMPTY, position(beyond=(11,)), ())
    assert (planned.heal_offset, planned.highest_number) == (900, 11)


def test_a_storage_brought_back_from_a_copy_reads_on_where_the_copy_was() -> None:
    planned = plan(replace(HEADER, highest_number=4, next_offset=200), position("after the copy", 2, 10), ())
    assert (planned.offset, planned.heal_offset, planned.highest_number) == (200, 450, 10)


def test_lost_positions_heal_up_to_the_end_of_the_log() -> None:
    """Pending output may have left; it is certain only for what the outputs still show."""
    planned = plan(at=Position(0, "", frozenset({10, 11})))
    assert (planned.offset, planned.heal_offset, planned.must_heal) == (500, 900, True)
    assert numbers(planned) == [12]


@pytest.mark.parametrize("at", [None, Position(450, ""), Position(450, "another program's"), Position(450, '["a", "b"]')])
def test_no_or_foreign_metadata_and_a_header_that_is_not_empty_heal(at: Position | None) -> None:
    planned = plan(at=at)
    assert (planned.offset, planned.heal_offset, planned.must_heal) == (500, 900, True)
    assert numbers(planned) == [10, 11, 12]


def test_foreign_metadata_and_an_empty_header_heal_from_the_start() -> None:
    planned = plan(EMPTY, Position(450, "another program's"), ())
    assert (planned.offset, planned.heal_offset, planned.must_heal) == (100, 900, True)


def test_a_heal_never_takes_back_an_earlier_one() -> None:
    assert plan(replace(HEADER, heal_offset=700), position("other_owner")).heal_offset == 700
    assert plan(replace(HEADER, heal_offset=700), position()).heal_offset == 700


def test_while_a_lost_position_is_healed_nothing_that_the_outputs_show_counts_as_to_leave() -> None:
    planned = plan(at=Position(450, "", frozenset({10, 11})))
    assert (planned.must_heal, numbers(planned), planned.highest_number) == (True, [12], 12)


def test_storage_none_goes_on_from_the_position_and_heals_nothing() -> None:
    planned = plan(EMPTY, position(beyond=(11, 12)), (), is_durable=False)
    assert planned == Takeover(450, 12, 0)


def test_storage_none_without_a_position_begins_at_the_start() -> None:
    assert plan(EMPTY, None, (), is_durable=False) == Takeover(100, 0, 0, is_new=True)


def test_the_last_commit_is_that_of_the_last_owner_who_made_one() -> None:
    assert last_commit(replace(HEADER, commit=2)) == ("new", 2)
    assert last_commit(HEADER) == ("old", 7)
    assert last_commit(replace(HEADER, history=(("old", 7), ("idle", 0)))) == ("old", 7)
    assert last_commit(EMPTY) == ("new", 0)


def test_metadata_survives_its_text() -> None:
    metadata = Metadata("t" * 32, 2**40, 2**53)
    assert find_metadata(metadata.encode()) == metadata
    assert len(metadata.encode()) < 4_096


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        "[]",
        '["t",1]',
        '["t",-1,2]',
        '["t",1,-2]',
        f'["t",1,{2**63}]',
        '["t",1,2,3]',
        "[" * 100_000,
        '["t",1,2,"",' + "[" * 100_000,
    ],
)
def test_what_another_program_wrote_is_no_metadata_of_ours(text: str) -> None:
    assert find_metadata(text) is None


def test_records_that_the_retention_took_before_they_were_read_are_named() -> None:
    behind = replace(HEADER, next_offset=60)
    planned = plan(behind, position())
    assert (planned.offset, planned.gone, planned.must_heal) == (100, range(60, 100), False)


def test_a_heal_begins_where_the_log_does_and_names_what_is_gone() -> None:
    behind = replace(HEADER, next_offset=60)
    planned = plan(behind, Position(450, ""))
    assert (planned.offset, planned.gone, planned.must_heal, planned.has_expired) == (100, range(60, 100), True, False)


def test_a_position_that_the_brokers_let_expire_is_no_acceptance_of_what_is_gone() -> None:
    planned = plan(replace(HEADER, next_offset=60), None)
    assert (planned.offset, planned.gone, planned.must_heal, planned.has_expired) == (100, range(60, 100), True, True)


def test_a_log_that_begins_where_reading_goes_on_has_lost_nothing() -> None:
    assert not plan(replace(HEADER, next_offset=100), position()).gone


def with_done(done: DoneOffsets, offset: int = 60) -> Position:
    return Position(offset, Metadata("old", 7, 10, encode(offset, done), offset).encode())


@pytest.mark.parametrize(
    ("done", "gone"),
    [
        (DoneOffsets(300), range(0)),
        (DoneOffsets(300, (range(120, 130),)), range(0)),
        (DoneOffsets(100), range(0)),
        (DoneOffsets(90), range(90, 100)),
        (DoneOffsets(300, (range(70, 72), range(80, 81), range(120, 130))), range(70, 81)),
        (DoneOffsets(300, (range(98, 110),)), range(98, 100)),
    ],
    ids=["all done", "waits behind it", "done up to it", "never read", "waited", "waited over it"],
)
def test_of_what_retention_took_only_what_was_not_done_is_missed(done: DoneOffsets, gone: range) -> None:
    planned = plan(EMPTY, with_done(done), (), is_durable=False)
    assert (planned.offset, planned.gone) == (100, gone)
    assert planned.done == done
