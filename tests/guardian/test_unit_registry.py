"""Which units are woken or stopped: idle time-outs, deadlines, retries, and the limit of memory."""

import msgspec
import pytest
from harness.driving import NoChance, Recorder

from guardian.partition_orders import Pause
from guardian.unit_registry import Dues, UnitRegistry, UnitRegistrySettings
from notification_service.payments.payment_data import LATEST_OBJECTS
from resequencer.batch import UnitKey
from resequencer.order import Order, OrderKind
from resequencer.record import Partition
from resequencer.settings import ResequencerSettings
from resequencer.storage_port import WaitKind, Waits
from resequencer.strategies.sequence import Sequence
from resequencer.turn.turn import Release, Turn, TurnContext
from resequencer.unit import Ordered, Unit, Wake

P0, P1 = Partition("T", 0), Partition("T", 1)
A, B, C, ELSEWHERE = UnitKey(P0, "a"), UnitKey(P0, "b"), UnitKey(P0, "c"), UnitKey(P1, "a")
CONTEXT = TurnContext(Sequence(), Recorder(), LATEST_OBJECTS, ResequencerSettings(), NoChance())


def waits(at: int, kind: WaitKind = WaitKind.DEADLINE, size: int = 10, since: int = 0) -> Waits:
    return Waits(at, kind, since, "sequence:1", "SEQUENCE", 1, size)


def decided(
    key: UnitKey,
    waiting: Waits | None = None,
    *,
    is_over: bool = False,
    has_changed: bool = True,
    is_last: bool = False,
    data_bytes: int = 0,
) -> Turn:
    turn = Turn(Unit(key.unit, None), CONTEXT, 0)
    turn.key, turn.waits, turn.data_bytes = key, waiting, data_bytes
    turn.is_changed, turn.is_last = has_changed, is_last
    turn.releases += [Release(key.unit, Wake.DEADLINE, "sequence:1", 1, 0, "t-0@0")] if is_over else []
    return turn


def registry(**settings: object) -> UnitRegistry:
    return UnitRegistry(msgspec.structs.replace(UnitRegistrySettings(), **settings))


def act(each: UnitRegistry, key: UnitKey, waiting: Waits | None = None, now: int = 0) -> None:
    """Let a unit take a turn; a unit without an actor gets one."""
    each.activate(key)
    each.note(decided(key, waiting), now)


READ = {P0: 1_000, P1: 1_000}


def test_a_unit_that_hears_nothing_stops_after_the_idle_timeout() -> None:
    one = registry()
    act(one, A)
    assert one.dues(29_999, READ, READ).stops == ()
    assert one.dues(30_000, READ, READ).stops == (A,)


def test_a_turn_that_changed_something_begins_the_idle_timeout_anew() -> None:
    one = registry()
    act(one, A)
    one.note(decided(A), 20_000)
    assert one.dues(49_999, READ, READ).stops == ()
    assert one.dues(50_000, READ, READ).stops == (A,)


def test_duplicates_do_not_keep_an_actor_alive() -> None:
    """The actor must stop before the unit's state expires in the storage."""
    one = registry()
    act(one, A)
    one.note(decided(A, has_changed=False), 20_000)
    assert one.dues(30_000, READ, READ).stops == (A,)


def test_a_new_actor_that_changes_nothing_stops_too() -> None:
    one = registry()
    one.activate(A)
    one.note(decided(A, has_changed=False), 5_000)
    assert one.dues(35_000, READ, READ).stops == (A,)


def test_a_unit_in_which_something_waits_never_idles_out() -> None:
    one = registry()
    act(one, A, waits(100_000))
    assert one.dues(99_999, READ, READ) == one.dues(50_000, READ, READ)
    assert one.dues(99_999, READ, READ).stops == ()


def test_a_deadline_wakes_its_unit_once() -> None:
    one = registry()
    act(one, A, waits(21_000))
    assert one.dues(20_999, READ, READ).wakes == {}
    assert one.dues(21_000, READ, READ).wakes == {A: Wake.DEADLINE}
    assert one.dues(99_000, READ, READ).wakes == {}


def test_an_unread_backlog_holds_a_deadline_back() -> None:
    one = registry()
    act(one, A, waits(21_000))
    assert one.dues(60_000, {P0: 10}, {P0: 100}).wakes == {}
    assert one.backlogged == 1
    assert one.dues(61_000, {P0: 99}, {P0: 5_000}).wakes == {}
    assert one.dues(62_000, {P0: 100}, {P0: 5_000}).wakes == {A: Wake.DEADLINE}
    assert one.backlogged == 0


def test_a_deadline_waits_while_the_end_of_its_log_is_not_known() -> None:
    one = registry()
    act(one, A, waits(21_000))
    assert one.dues(21_000, {P0: 10}, {}).wakes == {}
    assert one.dues(60_000, {P0: 10}, {}).wakes == {}
    assert one.dues(60_200, {P0: 10}, {P0: 12}).wakes == {}
    assert one.dues(60_300, {P0: 12}, {}).wakes == {A: Wake.DEADLINE}


def test_an_unread_backlog_elsewhere_holds_no_unit_back() -> None:
    one = registry()
    act(one, A, waits(21_000))
    assert one.dues(21_000, {P0: 100, P1: 0}, {P0: 100, P1: 100}).wakes == {A: Wake.DEADLINE}


def test_an_unread_backlog_does_not_hold_a_retry_back() -> None:
    one = registry()
    act(one, A, waits(3_000, WaitKind.RETRY))
    assert one.dues(3_000, {P0: 0}, {P0: 100}).wakes == {A: Wake.RETRY}


def test_a_unit_served_by_its_backlog_is_not_woken() -> None:
    one = registry()
    act(one, A, waits(21_000))
    one.dues(60_000, {P0: 10}, {P0: 100})
    one.note(decided(A), 60_001)
    assert one.dues(60_002, {P0: 100}, {P0: 100}).wakes == {}


def test_a_unit_that_waits_anew_within_its_backlog_gets_its_own_time() -> None:
    one = registry()
    act(one, A, waits(21_000))
    one.dues(60_000, {P0: 10}, {P0: 100})
    one.note(decided(A, waits(81_000)), 60_001)
    assert one.dues(62_000, {P0: 100}, {P0: 100}).wakes == {}
    assert one.dues(81_000, {P0: 100}, {P0: 100}).wakes == {A: Wake.DEADLINE}


def test_a_unit_that_waits_anew_within_a_long_backlog_waits_for_its_own_end() -> None:
    one = registry()
    act(one, A, waits(21_000))
    one.dues(60_000, {P0: 10}, {P0: 100})
    one.note(decided(A, waits(81_000)), 60_001)
    assert one.dues(81_000, {P0: 90}, {P0: 500}).wakes == {}
    assert one.dues(82_000, {P0: 100}, {P0: 500}).wakes == {}
    assert one.dues(83_000, {P0: 500}, {P0: 500}).wakes == {A: Wake.DEADLINE}


def test_a_deadline_is_not_lost_when_the_clock_is_set_back_while_its_backlog_is_read() -> None:
    one = registry()
    act(one, A, waits(21_000))
    one.dues(21_000, {P0: 10}, {P0: 100})
    assert one.dues(15_000, {P0: 100}, {P0: 100}).wakes == {}
    assert one.next_wake_at == 21_000
    assert one.dues(21_000, {P0: 100}, {P0: 100}).wakes == {A: Wake.DEADLINE}


def test_a_unit_that_waits_in_storage_is_woken_without_an_actor() -> None:
    one = registry()
    one.arm(A, waits(21_000))
    assert one.active == 0
    assert one.dues(21_000, READ, READ).wakes == {A: Wake.DEADLINE}


def test_who_is_over_stops_at_the_next_occasion() -> None:
    one = registry()
    one.activate(A)
    one.note(decided(A, is_over=True), 0)
    assert one.dues(1, READ, READ).stops == (A,)


def test_who_is_over_stays_until_it_is_idle_where_only_the_source_remembers_it() -> None:
    """The position waits for the actor: a duplicate of an envelope that it notified must not meet a unit without memory."""
    one = registry(can_reload=False)
    one.activate(A)
    one.note(decided(A, is_over=True), 0)
    assert one.dues(29_999, READ, READ) == Dues({}, ())
    assert one.dues(30_000, READ, READ) == Dues({A: Wake.PASSIVATE}, ())


def test_an_idle_unit_is_stored_in_a_turn_before_it_stops_where_turns_store_nothing() -> None:
    one = registry(can_reload=False)
    for key in (A, B):
        act(one, key)
    assert one.dues(30_000, READ, READ, limit=1).wakes == {A: Wake.PASSIVATE}
    one.note(decided(A, has_changed=False, is_last=True), 30_000)
    dues = one.dues(30_001, READ, READ, limit=1, spoken_to=(A, B))
    assert dues == Dues({B: Wake.PASSIVATE}, (A,))
    one.deactivate(A)
    one.note(decided(B, has_changed=True), 30_001)
    assert one.dues(30_002, READ, READ) == Dues({}, ()), "B is not stored as it is now"
    assert one.dues(60_001, READ, READ) == Dues({B: Wake.PASSIVATE}, ())


def test_a_unit_that_was_stored_and_then_changed_does_not_stop() -> None:
    """The stop of the next poll did not come, and the unit took a turn."""
    one = registry(can_reload=False)
    act(one, A)
    one.dues(30_000, READ, READ)
    one.note(decided(A, has_changed=False, is_last=True), 30_000)
    one.note(decided(A), 30_001)
    assert one.dues(30_002, READ, READ) == Dues({}, ())
    assert one.dues(60_001, READ, READ) == Dues({A: Wake.PASSIVATE}, ())


def test_who_is_over_and_stays_holds_no_stash_in_memory() -> None:
    one = registry(stash_bytes=100, can_reload=False)
    for key in (A, B, C):
        act(one, key, waits(21_000, size=40))
    assert one.dues(1, READ, READ).wakes == {A: Wake.BOUND}
    one.note(decided(A, is_over=True), 1)
    assert (one.stashed_bytes, one.active) == (80, 3)
    assert one.dues(2, READ, READ) == Dues({}, ())


def test_who_is_woken_is_not_stopped_at_the_same_time() -> None:
    one = registry()
    one.activate(A)
    one.note(decided(A, waits(5), is_over=True), 0)
    dues = one.dues(5, READ, READ)
    assert (dues.wakes, dues.stops) == ({A: Wake.DEADLINE}, ())


def test_the_next_instant_is_that_of_the_first_unit() -> None:
    one = registry()
    assert one.next_wake_at is None
    act(one, A, waits(21_000))
    act(one, B, waits(9_000))
    assert one.next_wake_at == 9_000


def test_at_the_bound_the_longest_waiting_leave_memory_where_storage_keeps_them() -> None:
    one = registry(stash_bytes=100)
    for key in (A, B, C):
        act(one, key, waits(21_000, size=40))
    dues = one.dues(1, READ, READ)
    assert (dues.wakes, dues.stops) == ({}, (A,))
    one.deactivate(A)
    assert one.stashed_bytes == 80
    assert one.dues(2, READ, READ).stops == ()
    assert one.dues(21_000, READ, READ).wakes.keys() == {A, B, C}


def test_at_the_bound_the_longest_waiting_are_released_where_nothing_keeps_them() -> None:
    one = registry(stash_bytes=100, can_reload=False)
    for key in (A, B, C):
        act(one, key, waits(21_000, size=40))
    dues = one.dues(1, READ, READ)
    assert (dues.wakes, dues.stops) == ({A: Wake.BOUND}, ())


def test_at_the_bound_a_unit_whose_deadline_has_come_is_woken_for_that() -> None:
    one = registry(stash_bytes=30, can_reload=False)
    act(one, A, waits(21_000, size=40))
    assert one.dues(21_000, READ, READ).wakes == {A: Wake.DEADLINE}


def test_what_lies_in_storage_only_does_not_count() -> None:
    one = registry(stash_bytes=100)
    one.arm(A, waits(21_000, size=1_000_000))
    act(one, B, waits(21_000, size=100))
    assert one.stashed_bytes == 100
    assert one.dues(1, READ, READ).stops == ()


def test_bytes_are_counted_as_stashes_grow_shrink_and_go() -> None:
    one = registry()
    one.arm(A, waits(21_000, size=70))
    one.activate(A)
    assert one.stashed_bytes == 70
    one.note(decided(A, waits(21_000, size=90)), 0)
    assert one.stashed_bytes == 90
    one.note(decided(A), 0)
    assert one.stashed_bytes == 0
    one.deactivate(A)
    one.deactivate(A)
    assert (one.stashed_bytes, one.active) == (0, 0)


AHEAD_MS = 86_400_000


@pytest.mark.parametrize("is_new", [True, False])
def test_a_deadline_begun_by_a_clock_that_was_ahead_begins_anew_once_the_clock_is_right(*, is_new: bool) -> None:
    one, stashed = registry(), waits(AHEAD_MS + 21_000, since=AHEAD_MS)
    if is_new:
        one.arm(A, stashed)
    else:
        act(one, A, stashed, now=AHEAD_MS)
        assert one.dues(AHEAD_MS, READ, READ).wakes == {}
    assert one.dues(10_000, READ, READ).wakes == {}
    assert one.next_wake_at == 31_000
    act(one, A, stashed, now=20_000)  # It came to another result, and reports the same deadline.
    assert one.dues(30_999, READ, READ).wakes == {}
    assert one.dues(31_000, READ, READ).wakes == {A: Wake.DEADLINE}


@pytest.mark.parametrize("kind", [WaitKind.RETRY, WaitKind.DEPENDENCY])
def test_a_pause_begun_by_a_clock_that_was_ahead_is_no_longer_than_the_longest(kind: WaitKind) -> None:
    one = registry(longest_pause_ms=40_000)
    act(one, A, waits(AHEAD_MS + 3_000, kind), now=AHEAD_MS)
    assert one.dues(10_000, READ, READ).wakes == {}
    assert one.next_wake_at == 50_000
    assert one.dues(50_000, READ, READ).wakes == {A: Wake.RETRY}


@pytest.mark.parametrize("is_new", [True, False])
def test_a_unit_whose_deadline_is_further_away_than_any_can_be_is_woken_to_set_it_anew(*, is_new: bool) -> None:
    """A hold ended, or an order set the deadline, while the clock was ahead."""
    one, longest, ahead = registry(longest_deadline_ms=2 * AHEAD_MS), 2 * AHEAD_MS, 365 * AHEAD_MS
    if is_new:
        one.arm(A, waits(ahead))
    else:
        act(one, A, waits(ahead), now=ahead - 1)
    one.arm(B, waits(10_000 + longest))
    assert one.dues(10_000, READ, READ).wakes == {A: Wake.DEADLINE}
    act(one, A, waits(31_000), now=10_000)
    assert one.dues(30_999, READ, READ).wakes == {}
    assert one.dues(31_000, READ, READ).wakes == {A: Wake.DEADLINE}


@pytest.mark.parametrize("is_new", [True, False])
def test_a_pause_of_a_partition_that_a_clock_ahead_ended_ends_once_the_clock_is_right(*, is_new: bool) -> None:
    one = registry()
    one.arm(A, waits(21_000))
    one.note_pauses(P0, (Pause(5_000, AHEAD_MS),))
    if not is_new:
        assert one.dues(AHEAD_MS, READ, READ).wakes == {}
    assert one.dues(60_000, READ, READ).wakes == {}
    assert one.next_wake_at == 76_000
    one.arm(B, waits(100_000, since=79_000))
    assert one.dues(76_000, READ, READ).wakes == {A: Wake.DEADLINE}
    assert one.dues(100_000, READ, READ).wakes == {B: Wake.DEADLINE}


def test_a_unit_that_was_spoken_to_by_a_clock_that_was_ahead_idles_out() -> None:
    one = registry()
    act(one, A, now=AHEAD_MS)
    assert one.dues(AHEAD_MS, READ, READ).stops == ()
    assert one.dues(5_000, READ, READ).stops == ()
    assert one.dues(35_000, READ, READ).stops == (A,)


def test_clocks_that_differ_by_less_than_a_second_change_nothing() -> None:
    one = registry()
    one.arm(A, waits(21_900, since=900))
    assert one.dues(0, READ, READ).wakes == {}
    assert one.next_wake_at == 21_900


def test_a_turn_that_was_cut_before_it_called_a_server_says_nothing_of_it() -> None:
    one = registry()
    waiting = waits(1_000, WaitKind.DEPENDENCY)
    one.arm(A, waiting)
    assert one.dues(1_000, READ, READ).wakes == {A: Wake.RETRY}
    one.activate(A)
    one.note(decided(A, waiting), 1_000)
    assert one.dues(1_000, READ, READ).wakes == {A: Wake.RETRY}
    one.note(decided(A, waits(2_000, WaitKind.DEPENDENCY)), 1_000)
    assert one.dues(1_900, READ, READ).wakes == {}


@pytest.mark.parametrize("kind", [WaitKind.DEADLINE, WaitKind.RETRY, WaitKind.DEPENDENCY])
def test_of_those_whose_time_has_come_as_many_are_loaded_at_once_as_fit(kind: WaitKind) -> None:
    """After an outage many large units may be due."""
    one = registry(stash_bytes=8_000)
    keys = [UnitKey(P0, f"u{number}") for number in range(6)]
    for key in keys:
        one.arm(key, waits(1_000, kind, size=500))
    woken: list[UnitKey] = []
    now = 0
    while len(woken) < len(keys):
        now += 100_000
        assert one.next_wake_at is not None
        dues = one.dues(now, READ, READ)
        assert len(dues.wakes) <= 2
        woken += dues.wakes
        for key in dues.wakes:
            act(one, key)
    assert woken == keys


def test_those_that_are_in_memory_are_woken_all_at_once() -> None:
    one = registry(stash_bytes=8_000)
    keys = [UnitKey(P0, f"u{number}") for number in range(6)]
    for key in keys:
        act(one, key, waits(1_000, size=500))
    assert list(one.dues(1_000, READ, READ).wakes) == keys


def test_a_dropped_partition_leaves_nothing_behind() -> None:
    one = registry()
    act(one, A, waits(21_000))
    one.arm(B, waits(22_000))
    act(one, C)
    act(one, ELSEWHERE, waits(21_000, size=7))
    one.dues(21_000, {P0: 0, P1: 0}, READ)
    assert set(one.drop(P0)) == {A, C}
    assert (one.active, one.backlogged, one.stashed_bytes, list(one.waits)) == (1, 1, 7, [ELSEWHERE])
    assert one.dues(90_000, READ, READ).wakes == {ELSEWHERE: Wake.DEADLINE}


def test_units_that_an_order_holds_are_counted_until_their_hold_ends_or_their_partition_goes() -> None:
    one = registry()
    held = waits(90_000, WaitKind.HELD)
    act(one, A, held)
    act(one, A, held)
    act(one, B, waits(90_000))
    one.arm(C, held)
    one.arm(ELSEWHERE, held)
    assert one.held == 3
    one.note(decided(A, waits(90_000)), 1)
    assert one.held == 2
    one.note(decided(A, held), 2)
    one.note(decided(A), 3)
    assert one.held == 2
    one.drop(P0)
    assert one.held == 1
    one.drop(P1)
    assert one.held == 0


def test_a_unit_of_a_dropped_partition_that_was_over_is_not_stopped_later() -> None:
    one = registry()
    one.activate(A)
    one.note(decided(A, is_over=True), 0)
    one.drop(P0)
    one.activate(A)
    assert one.dues(1, READ, READ).stops == ()


@pytest.mark.parametrize("count", [1, 2, 5])
def test_the_longest_waits_come_first(count: int) -> None:
    one = registry()
    for place, key in enumerate((A, B, C)):
        one.arm(key, waits(21_000, since=10 - place))
    assert [key for key, _ in one.longest(count)] == [C, B, A][:count]


def with_data(each: UnitRegistry, *sizes: tuple[UnitKey, int]) -> None:
    for key, size in sizes:
        each.activate(key)
        each.note(decided(key, data_bytes=size), 0)


def test_beyond_the_bound_the_payment_data_of_the_longest_silent_units_leaves_memory() -> None:
    one = registry(stash_bytes=100)
    with_data(one, (A, 40), (B, 40), (C, 15))
    assert one.dues(0, READ, READ).stops == ()
    one.note(decided(A, data_bytes=50), 0)
    assert one.dues(0, READ, READ).stops == (B,)


def test_a_unit_that_left_memory_counts_no_more() -> None:
    one = registry(stash_bytes=100)
    with_data(one, (A, 60), (B, 60))
    for key in one.dues(0, READ, READ).stops:
        one.deactivate(key)
    assert one.dues(0, READ, READ).stops == ()
    one.drop(P0)
    with_data(one, (ELSEWHERE, 90))
    assert one.dues(0, READ, READ).stops == ()


def test_where_nothing_can_be_loaded_again_payment_data_stays() -> None:
    one = registry(stash_bytes=100, can_reload=False)
    with_data(one, (A, 60), (B, 60))
    assert one.dues(0, READ, READ) == Dues({}, ())


# Where a handler waits

SERVER = Waits(1_000, WaitKind.DEPENDENCY, 0, "register", "SEQUENCE", 1, 10)
CALL = Waits(1_000, WaitKind.CALL, 0, "its handler, attempt 1 of 3", "SEQUENCE", 1, 10)


def test_a_unit_whose_handler_is_called_is_woken_only_when_its_call_can_begin() -> None:
    one = registry()
    act(one, A, CALL)
    assert one.dues(10**9, READ, READ).wakes == {}
    assert one.dues(10**9, READ, READ, to_call=(A,)).wakes == {A: Wake.CALL}


def test_of_a_wave_whose_try_is_a_call_only_the_answer_shows_whether_the_server_is_there() -> None:
    one = registry()
    for key in (A, B, C):
        act(one, key, SERVER)
    assert one.dues(1_000, READ, READ).wakes == {A: Wake.RETRY}
    one.note(decided(A, CALL), 1_000)
    assert one.unavailable == {"register": 3}, "nothing is logged before the answer"
    one.note(decided(A, CALL), 1_500)  # Something came for the unit.
    assert one.dues(60_000, READ, READ).wakes == {}, "no other one tries before the answer"
    one.note(decided(A, msgspec.structs.replace(SERVER, wakes_at=90_000)), 60_000)
    assert one.dues(60_999, READ, READ).wakes == {}
    assert one.dues(61_000, READ, READ).wakes == {B: Wake.RETRY}
    one.note(decided(B, CALL), 61_000)
    one.note(decided(B), 62_000)
    assert one.unavailable == {"register": 2}
    assert one.dues(90_000, READ, READ).wakes.keys() == {C, A}, "twice as many after a success"


def test_a_try_whose_call_is_held_shows_nothing_of_the_server() -> None:
    one = registry()
    for key in (A, B, C):
        act(one, key, SERVER)
    assert one.dues(1_000, READ, READ).wakes == {A: Wake.RETRY}
    one.note(decided(A, CALL), 1_000)
    one.note(decided(A, msgspec.structs.replace(SERVER, kind=WaitKind.HELD, wakes_at=90_000)), 1_000)
    assert len(one.dues(1_000, READ, READ).wakes) == 1


def test_a_unit_that_is_called_before_its_wave_is_no_longer_due_for_the_server() -> None:
    """An order had it tried at once, or its stash was full."""
    one = registry()
    for key in (A, B):
        act(one, key, SERVER)
    assert one.dues(1_000, READ, READ).wakes == {A: Wake.RETRY}
    one.note(decided(B, CALL), 1_000)
    assert one.unavailable == {"register": 1}
    one.note(decided(A), 2_000)
    assert one.unavailable == {}
    assert one.dues(2_000, READ, READ).wakes == {}
    one.note(decided(B, msgspec.structs.replace(SERVER, wakes_at=5_000)), 3_000)
    assert one.unavailable == {"register": 1}
    assert one.dues(5_000, READ, READ).wakes == {B: Wake.RETRY}
    one.drop(P0)
    assert one.unavailable == {}


def test_a_unit_that_stashes_much_behind_its_call_stays_in_memory_and_its_partition_is_not_read() -> None:
    one = registry(unit_stash=5)
    act(one, A, msgspec.structs.replace(CALL, stashed=5))
    assert list(one.crowded) == []
    act(one, B, msgspec.structs.replace(CALL, stashed=6))
    assert (list(one.crowded), one.dues(0, READ, READ).stops) == ([B.partition], ())
    act(one, B, msgspec.structs.replace(CALL, stashed=5))
    assert list(one.crowded) == []


# Orders that wait for unread records


ORDERED = waits(600_000, WaitKind.ORDERED)
RELEASE = Order(id="1", kind=OrderKind.RELEASE, by="anna", because="why", at=0, unit="a", waits_for="sequence:1", since=0)


def with_order(key: UnitKey, unread_to: int = 100, waiting: Waits = ORDERED) -> Turn:
    """Return a turn after which an order waits until this offset is read."""
    turn = decided(key, waiting)
    turn.unit.amend(waiting_order=Ordered(RELEASE, 7, 0, unread_to, 600_000))
    return turn


def order_in(one: UnitRegistry, key: UnitKey, unread_to: int = 100) -> None:
    one.activate(key)
    one.note(with_order(key, unread_to), 0)


def test_an_order_is_executed_when_its_partition_was_read_up_to_where_its_log_ended() -> None:
    one = registry()
    order_in(one, A)
    order_in(one, B, 50)
    order_in(one, ELSEWHERE, 100)
    assert one.dues(1, {P0: 49, P1: 99}, {P0: 5_000, P1: 5_000}).wakes == {}
    assert one.dues(2, {P0: 50, P1: 99}, {P0: 6_000, P1: 6_000}).wakes == {B: Wake.ORDER}
    one.note(decided(B), 2)
    assert one.dues(3, {P0: 100, P1: 99}, {P0: 6_000, P1: 6_000}).wakes == {A: Wake.ORDER}


def test_its_wake_is_repeated_until_its_turn_was_taken() -> None:
    one = registry()
    order_in(one, A)
    assert [one.dues(at, READ, READ).wakes for at in (1, 2)] == [{A: Wake.ORDER}] * 2
    one.note(decided(A), 2)
    assert one.dues(3, READ, READ).wakes == {}


def test_an_order_whose_time_is_over_wakes_its_unit() -> None:
    one = registry()
    order_in(one, A)
    assert one.next_wake_at == 600_000
    assert one.dues(600_000, {P0: 99}, READ).wakes == {A: Wake.HOLD_OVER}


def test_records_that_are_read_when_its_time_is_over_execute_it() -> None:
    one = registry()
    order_in(one, A)
    assert one.dues(600_000, {P0: 100}, READ).wakes == {A: Wake.ORDER}


def test_a_unit_in_which_an_order_waits_is_asked_after_a_takeover_what_for() -> None:
    one = registry()
    one.arm(A, ORDERED)
    assert one.dues(0, {P0: 10}, READ).wakes == {A: Wake.HOLD_OVER}
    order_in(one, A)
    assert one.dues(1, {P0: 10}, READ).wakes == {}
    assert one.dues(2, {P0: 100}, READ).wakes == {A: Wake.ORDER}


@pytest.mark.parametrize("kind", [WaitKind.RETRY, WaitKind.CALL, WaitKind.REMAINDER, WaitKind.DEPENDENCY])
def test_an_order_waits_on_while_its_unit_waits_for_something_else(kind: WaitKind) -> None:
    one = registry()
    one.activate(A)
    one.note(with_order(A, waiting=waits(30_000, kind)), 0)
    assert Wake.ORDER not in one.dues(1, READ, READ).wakes.values()
    one.note(with_order(A), 2)
    assert one.dues(3, READ, READ).wakes == {A: Wake.ORDER}


def test_a_pause_lets_an_order_wait_on_and_its_time_run() -> None:
    one = registry()
    order_in(one, A)
    one.note_pauses(P0, (Pause(10, None),))
    assert one.dues(599_999, {P0: 99}, READ).wakes == {}
    assert one.dues(600_000, {P0: 99}, READ).wakes == {A: Wake.HOLD_OVER}


def test_orders_of_a_partition_that_is_gone_wake_nothing() -> None:
    one = registry()
    order_in(one, A)
    one.drop(P0)
    assert one.dues(600_000, READ, READ).wakes == {}


def test_a_unit_with_an_order_may_leave_memory() -> None:
    one = registry()
    order_in(one, A)
    one.deactivate(A)
    assert one.dues(2, {P0: 100}, READ).wakes == {A: Wake.ORDER}
