"""PREVIOUS: each event names the one before it, and leaves behind it."""

from itertools import permutations
from random import Random

import pytest
from harness.driving import Driven, Envelopes, drive
from harness.examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from notification_service.payments.envelope import DataEnvelope
from resequencer.dead_letter import DeadLetterReason
from resequencer.errors import PermanentError, TransientError
from resequencer.order import OrderKind, OrderResult
from resequencer.storage_port import WaitKind
from resequencer.strategies.previous import REMEMBERED_LINKS, Links
from resequencer.turn.turn import Turn
from resequencer.unit import Wake


def linked(make: Envelopes, name: str, previous: str | None = None) -> DataEnvelope:
    """Return an event of this id, which names the one before it."""
    return replace(make(1, identity=name), previous=previous)


def chain(make: Envelopes, count: int) -> list[DataEnvelope]:
    return [linked(make, str(number), str(number - 1) if number > 1 else None) for number in range(1, count + 1)]


def driven(reincarnates: bool = False, **how: int) -> Driven:
    unit = drive("PREVIOUS", **how)
    unit.reincarnates, unit.keeps_events = reincarnates, True
    return unit


def ids(unit: Driven) -> list[str]:
    return [each.notification_id for each in unit.left if hasattr(each, "notification_id")]


def left(unit: Driven) -> list[str]:
    """Return what left, with its marks."""
    by_id = {envelope.envelope_id: marks for envelope, _, marks, _ in unit.handler.seen}
    marked = ((each, by_id[each].incomplete, by_id[each].late) for each in ids(unit))
    return [f"{each}{f' {incomplete}' if incomplete else ''}{' late' if late else ''}" for each, incomplete, late in marked]


def waits_for(unit: Driven) -> str | None:
    assert unit.last is not None
    return None if unit.last.waits is None else unit.last.waits.waits_for


@pytest.mark.parametrize("reincarnates", [False, True])
def test_every_permutation_of_a_chain_comes_out_in_order(envelopes: Envelopes, reincarnates: bool) -> None:
    for order in permutations(chain(envelopes, 5)):
        unit = driven(reincarnates)
        unit.arrive(*order)
        assert left(unit) == ["1", "2", "3", "4", "5"]
        assert waits_for(unit) is None
        assert unit.stored is not None
        assert unit.stored.stash == ()


def test_the_first_of_a_chain_names_none_and_leaves_at_once(envelopes: Envelopes) -> None:
    unit = driven()
    unit.arrive(linked(envelopes, "9"), linked(envelopes, "7"))
    assert left(unit) == ["9", "7"]


def test_one_that_waits_names_what_it_waits_for(envelopes: Envelopes) -> None:
    unit = driven()
    unit.arrive(linked(envelopes, "3", "2"))
    assert (left(unit), waits_for(unit)) == ([], "previous:2")
    unit.arrive(linked(envelopes, "2", "1"))
    assert waits_for(unit) == "previous:1", "3 waits for nothing that is not there"


def test_two_behind_the_same_one_leave_by_arrival_and_then_what_is_behind_them(envelopes: Envelopes) -> None:
    unit = driven()
    unit.arrive(
        linked(envelopes, "3b", "2b"), linked(envelopes, "3a", "2a"), linked(envelopes, "2b", "1"), linked(envelopes, "2a", "1"),
        linked(envelopes, "1"),
    )  # fmt: skip
    assert left(unit) == ["1", "2b", "2a", "3b", "3a"]


def test_at_the_deadline_the_heads_of_chains_are_forced_by_arrival_and_their_chains_follow(envelopes: Envelopes) -> None:
    unit = driven()
    unit.arrive(*(linked(envelopes, *each) for each in (("4", "3"), ("9", "8"), ("3", "2"), ("5", "4"))))
    unit.expire()
    assert left(unit) == ["9 previous:8", "3 previous:2", "4 previous:2", "5 previous:2"]
    assert unit.last is not None
    assert [(each.missing, each.envelopes) for each in unit.last.releases] == [("previous:8", 4)]


def test_a_cycle_is_forced_by_arrival(envelopes: Envelopes) -> None:
    unit = driven()
    unit.arrive(*(linked(envelopes, *each) for each in (("2", "1"), ("3", "2"), ("1", "3"), ("x", "x"))))
    assert left(unit) == []
    unit.expire()
    assert left(unit) == ["2 previous:1", "3 previous:1", "1 previous:1 late", "x previous:x"]


@pytest.mark.parametrize("reincarnates", [False, True])
@pytest.mark.parametrize("budget", [1, 1 << 40])
def test_what_is_behind_a_cycle_follows_it(envelopes: Envelopes, reincarnates: bool, budget: int) -> None:
    unit = driven(reincarnates)
    unit.budget = budget
    unit.arrive(*(linked(envelopes, *each) for each in (("t", "x"), ("x", "y"), ("y", "x"), ("u", "t"), ("9", "8"))))
    assert waits_for(unit) == "previous:8"
    unit.expire()
    unit.let_out_the_rest()
    assert sorted(left(unit)) == ["9 previous:8", "t previous:x", "u previous:x", "x previous:x late", "y previous:x"]
    found = [each.partition(" ")[0] for each in left(unit)]
    assert found.index("9") < found.index("y") < found.index("x") < found.index("t") < found.index("u")


def test_behind_a_cycle_a_skip_gives_up_what_the_cycle_waits_for(envelopes: Envelopes) -> None:
    unit = driven()
    unit.arrive(*(linked(envelopes, *each) for each in (("t", "w"), ("w", "x"), ("x", "y"), ("y", "x"))))
    assert waits_for(unit) == "previous:x"
    outcome = unit.order(OrderKind.SKIP)
    assert outcome is not None
    assert outcome.result is OrderResult.DONE
    assert waits_for(unit) is None
    assert sorted(ids(unit)) == ["t", "w", "x", "y"]
    assert ids(unit).index("w") < ids(unit).index("t")
    assert ids(unit).index("y") < ids(unit).index("x")


def test_while_the_head_fails_no_other_lane_is_asked(envelopes: Envelopes, monkeypatch: pytest.MonkeyPatch) -> None:
    unit, fails = driven(), linked(envelopes, "0")
    unit.handler.fail(fails, TransientError("away"), TransientError("away"))
    unit.arrive(fails, *(linked(envelopes, f"b{number}", f"a{number}") for number in range(9)))
    asked: list[str] = []
    monkeypatch.setattr(Turn, "unstash", lambda self, lane, after=None: asked.append(lane))
    unit.wake(Wake.RETRY, after_ms=60_000)
    assert set(asked) <= {""}


def test_what_comes_for_a_link_that_was_given_up_is_late_and_still_behind_what_it_names(envelopes: Envelopes) -> None:
    unit = driven()
    unit.arrive(linked(envelopes, "4", "3"))
    unit.expire()
    unit.arrive(linked(envelopes, "3", "2"))
    unit.arrive(linked(envelopes, "2", "1"), linked(envelopes, "5", "4"), linked(envelopes, "4b", "3"), linked(envelopes, "1"))
    assert left(unit) == ["4 previous:3", "5", "4b", "1", "2", "3 late"]


def test_what_is_late_and_waits_in_vain_is_incomplete_and_late(envelopes: Envelopes) -> None:
    unit = driven()
    unit.arrive(linked(envelopes, "4", "3"))
    unit.expire()
    unit.arrive(linked(envelopes, "3", "2"))
    unit.expire()
    assert left(unit) == ["4 previous:3", "3 previous:2 late"]


def test_what_follows_a_dead_letter_does_not_wait_and_it_may_come_again(envelopes: Envelopes) -> None:
    unit = driven()
    made = chain(envelopes, 3)
    unit.handler.fail(made[1], PermanentError("no"))
    unit.arrive(*made)
    assert left(unit) == ["1", "3"]
    assert [each.reason for each in unit.dead] == [DeadLetterReason.HANDLER_FAILED]
    unit.arrive(envelopes.again(made[1]))
    assert left(unit) == ["1", "3", "2 late"]


def test_a_dead_letter_that_comes_again_before_what_follows_it_is_not_late(envelopes: Envelopes) -> None:
    unit = driven()
    made = chain(envelopes, 3)
    for each in made[:2]:
        unit.handler.fail(each, PermanentError("no"))
    unit.arrive(*made[:2])
    unit.arrive(envelopes.again(made[0]), envelopes.again(made[1]), made[2])
    assert left(unit) == ["1", "2", "3"], "what was dead behind the first was not handled"


def test_one_that_was_forced_and_dead_leaves_what_it_named_in_time(envelopes: Envelopes) -> None:
    unit = driven()
    made = chain(envelopes, 3)
    unit.handler.fail(made[2], PermanentError("no"))
    unit.arrive(made[2])
    unit.expire()
    unit.arrive(made[1], made[0], envelopes.again(made[2]))
    assert left(unit) == ["1", "2", "3"]


def test_one_that_was_passed_and_fails_is_still_late_when_it_comes_again(envelopes: Envelopes) -> None:
    unit = driven()
    made = chain(envelopes, 2)
    unit.handler.fail(made[0], PermanentError("no"))
    unit.arrive(made[1])
    unit.expire()
    unit.arrive(made[0], envelopes.again(made[0]))
    assert left(unit) == ["2 previous:1", "1 late"]


def test_a_skip_gives_up_the_named_link(envelopes: Envelopes) -> None:
    unit = driven()
    unit.arrive(linked(envelopes, "4", "3"), linked(envelopes, "3", "2"), linked(envelopes, "9", "8"))
    outcome = unit.order(OrderKind.SKIP)
    assert outcome is not None
    assert (outcome.result, outcome.text) == (OrderResult.DONE, "skipped previous:2; 2 envelopes went on")
    assert left(unit) == ["3 previous:2", "4 previous:2"]
    assert waits_for(unit) == "previous:8"
    unit.arrive(linked(envelopes, "2"))
    assert left(unit)[-1] == "2 late"


def test_the_last_256_links_are_remembered_and_no_more(envelopes: Envelopes) -> None:
    made = chain(envelopes, REMEMBERED_LINKS + 1)
    unit = driven()
    unit.arrive(*made)
    assert isinstance(unit.unit.state, Links)
    assert len(unit.unit.state.known) == 9 * 256
    unit.arrive(linked(envelopes, "fork", "2"))
    assert ids(unit)[-1] == "fork", "2 is the oldest of the 256"
    unit.arrive(linked(envelopes, "another", "2"))
    assert ids(unit)[-1] == "another", "it was named by the fork"
    unit.arrive(linked(envelopes, "last", "3"))
    assert waits_for(unit) == "previous:3", "the fork took its place"


@pytest.mark.parametrize("reincarnates", [False, True])
def test_one_that_is_named_by_many_is_remembered_as_long_as_they_come(envelopes: Envelopes, reincarnates: bool) -> None:
    followers = [linked(envelopes, f"f{number}", "root") for number in range(2 * REMEMBERED_LINKS)]
    for arrival in ([linked(envelopes, "root"), *followers], [*followers, linked(envelopes, "root")]):
        unit = driven(reincarnates)
        unit.arrive(*arrival)
        assert left(unit) == ["root", *(each.event_id for each in followers)]
        assert waits_for(unit) is None


def test_an_id_is_not_found_across_the_bounds_of_two_others() -> None:
    """The ids are packed: the hash of one may be in the middle of two others."""
    unit = driven()
    event = linked(Envelopes(), "b", "a")
    state = unit.strategy.handled(unit.strategy.initial(), linked(Envelopes(), "a"))
    shifted = Links(b"\x01" * 5 + state.known + b"\x01" * 4)
    assert unit.strategy.accepts(state, event)
    assert not unit.strategy.accepts(shifted, event)


def test_a_head_under_retry_waits_for_what_came_before_it_meanwhile(envelopes: Envelopes) -> None:
    unit = driven(reincarnates=True)
    made = chain(envelopes, 4)
    unit.handler.fail(made[3], TransientError("away"))
    unit.arrive(made[3])
    unit.expire()
    assert waits_for(unit) == "attempt 2 of 3, after TransientError: away"
    unit.arrive(made[2], made[1], made[0])
    assert left(unit) == []
    unit.wake(Wake.RETRY, after_ms=60_000)
    assert left(unit) == ["1", "2", "3", "4"]


def test_a_head_under_retry_takes_the_first_of_its_chain_with_it(envelopes: Envelopes) -> None:
    unit = driven(reincarnates=True)
    made = chain(envelopes, 4)
    unit.handler.fail(made[3], TransientError("away"))
    unit.arrive(made[3])
    unit.expire()
    unit.arrive(made[2], made[1], linked(envelopes, "z", "y"))
    unit.wake(Wake.RETRY, after_ms=60_000)
    assert left(unit) == ["2 previous:1", "3 previous:1", "4 previous:1"]
    assert waits_for(unit) == "previous:y", "it came after the release"


def test_marks_of_a_release_reach_all_that_it_freed_behind_a_retry(envelopes: Envelopes) -> None:
    unit = driven(reincarnates=True)
    fails = linked(envelopes, "y", "x")
    unit.handler.fail(fails, TransientError("away"))
    unit.arrive(linked(envelopes, "x", "p"), linked(envelopes, "x2", "p"), fails)
    unit.arrive(linked(envelopes, "y2", "x2"), linked(envelopes, "z", "y"))
    unit.expire()
    unit.arrive(linked(envelopes, "z2", "y2"))
    unit.wake(Wake.RETRY, after_ms=60_000)
    assert sorted(left(unit)) == ["x previous:p", "x2 previous:p", "y previous:p", "y2 previous:p", "z previous:p", "z2"]


@pytest.mark.parametrize("reincarnates", [False, True])
def test_a_release_that_runs_out_of_budget_keeps_order_and_marks(envelopes: Envelopes, reincarnates: bool) -> None:
    unit = driven(reincarnates)
    unit.budget = 1
    unit.arrive(*reversed(chain(envelopes, 5)[1:]), linked(envelopes, "3b", "2"), linked(envelopes, "9", "8"))
    unit.expire()
    assert unit.has_remainder
    unit.arrive(linked(envelopes, "6", "5"))
    unit.let_out_the_rest()
    found = left(unit)
    marked = [f"{each} previous:1" for each in ("2", "3", "3b", "4", "5")]
    assert sorted(found) == [*marked, "6", "9 previous:8"]
    places = {each.partition(" ")[0]: at for at, each in enumerate(found)}
    assert places["2"] < places["3"] < places["4"] < places["5"] < places["6"]


def test_at_a_bound_heads_leave_first(envelopes: Envelopes) -> None:
    unit = driven(stash_limit=3)
    unit.arrive(*reversed(chain(envelopes, 5)[1:]))
    assert left(unit) == ["2 previous:1", "3 previous:1", "4 previous:1", "5 previous:1"]


@settings(max_examples=examples(80))
@given(st.integers(2, 60), st.integers(), st.booleans())
def test_whatever_is_lost_and_doubled_all_leave_once_behind_what_they_name(count: int, seed: int, reincarnates: bool) -> None:
    """Random trees of events, some lost, some doubled, with deadlines in between."""
    chance, make = Random(seed), Envelopes()
    unit = driven(reincarnates and count < 25, stash_limit=chance.choice((4, 1_000)))
    before = [None, *(chance.choice((None, at - 1, at - 1, at - 1, chance.randrange(at))) for at in range(1, count))]
    lost = {at for at in range(count) if chance.random() < 0.1}
    events = [linked(make, f"e{at}", None if of is None else f"e{of}") for at, of in enumerate(before) if at not in lost]
    came = sorted(events, key=lambda each: int(each.event_id[1:]) + chance.uniform(0, 8))
    for each in came:
        unit.arrive(each)
        if chance.random() < 0.1:
            unit.arrive(make.again(chance.choice(came[: came.index(each) + 1])))
        if chance.random() < 0.1 and unit.last is not None and unit.last.waits is not None:
            unit.expire()
    while unit.last is not None and unit.last.waits is not None:
        unit.expire()
    assert sorted(ids(unit)) == sorted(each.event_id for each in events)
    marks = {envelope.envelope_id: marks for envelope, _, marks, _ in unit.handler.seen}
    places = {each: at for at, each in enumerate(ids(unit))}
    for each in events:
        place = places[each.event_id]
        beside = [other for other in events if other.previous == each.previous and places[other.event_id] <= place]
        is_behind = each.previous is None or places.get(each.previous, count) < place
        assert is_behind or any(marks[other.event_id].incomplete for other in beside)
        passed = [other.event_id for other in events if other.previous == each.event_id]
        assert marks[each.event_id].late == any(places[other] < places[each.event_id] for other in passed)
    if not lost and not any(marks[each].incomplete for each in marks):
        assert all(each.previous is None or places[each.previous] < places[each.event_id] for each in events)


@settings(max_examples=examples(40))
@given(st.integers(2, 120), st.integers())
def test_without_losses_any_order_of_a_tree_comes_out_unmarked(count: int, seed: int) -> None:
    chance, make, unit = Random(seed), Envelopes(), driven()
    events = [linked(make, "0")]
    events += [linked(make, str(number), str(chance.randrange(max(0, number - 5), number))) for number in range(1, count)]
    chance.shuffle(events)
    unit.arrive(*events)
    places = {each: at for at, each in enumerate(ids(unit))}
    assert len(places) == len(ids(unit)) == count
    assert all(each.previous is None or places[each.previous] < places[each.event_id] for each in events)
    assert not any(marks.late or marks.incomplete for marks in unit.marks)
    assert unit.last is not None
    assert unit.last.waits is None


def test_a_hold_ends_with_all_that_is_acceptable_in_any_lane(envelopes: Envelopes) -> None:
    unit = driven(reincarnates=True)
    unit.arrive(linked(envelopes, "0"))
    unit.order(OrderKind.HOLD, for_ms=60_000)
    unit.arrive(*reversed(chain(envelopes, 3)), linked(envelopes, "x"))
    assert unit.last is not None
    assert unit.last.waits is not None
    assert unit.last.waits.kind is WaitKind.HELD
    unit.order(OrderKind.RESUME)
    assert sorted(left(unit)) == ["0", "1", "2", "3", "x"]
    assert [each for each in left(unit) if each != "x"] == ["0", "1", "2", "3"]
