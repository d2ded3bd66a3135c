"""A release or a skip in front of unread records waits in its unit until they are read, and has one outcome."""

from collections.abc import Callable

import pytest
from harness.driving import BACKLOG_WAIT_MS, Driven, Envelopes, drive
from msgspec.structs import replace

from resequencer.errors import DependencyUnavailable, TransientError
from resequencer.order import OrderKind, OrderOutcome, OrderResult
from resequencer.storage_port import StorageRefused, WaitKind
from resequencer.turn.poison import take_careful_turn
from resequencer.unit import Wake
from tests.resequencer.turn.ordered_units import HOUR, result, under_retry, waiting

END = 700
KINDS = (OrderKind.RELEASE, OrderKind.SKIP)
both = pytest.mark.parametrize("kind", KINDS)


def ordered(envelopes: Envelopes, kind: OrderKind = OrderKind.RELEASE, *numbers: int) -> Driven:
    """Return a unit in which these numbers wait, and an order waits for unread records."""
    unit = waiting(envelopes, *(numbers or (2,)))
    assert unit.order(kind, unread_to=END) is None
    return unit


def results(unit: Driven) -> list[OrderResult]:
    return [each.result for each in unit.outcomes]


def last(unit: Driven) -> OrderOutcome:
    return unit.outcomes[-1]


def kind_of(unit: Driven) -> WaitKind | None:
    return unit.last.waits.kind if unit.last is not None and unit.last.waits is not None else None


@both
def test_it_is_executed_when_the_records_are_read(kind: OrderKind, envelopes: Envelopes) -> None:
    unit = ordered(envelopes, kind)
    assert unit.last is not None
    assert unit.last.waits is not None
    assert (unit.last.waits.kind, unit.last.waits.wakes_at) == (WaitKind.ORDERED, unit.now + BACKLOG_WAIT_MS)
    assert (unit.last.waits.waits_for, unit.sequences, unit.outcomes) == ("sequence:1", [], [])
    unit.wake(Wake.ORDER, after_ms=5_000)
    assert (unit.sequences, results(unit), kind_of(unit)) == ([2], [OrderResult.DONE], None)
    assert [(each.incomplete, each.ordered) for each in unit.marks] == [("sequence:1", True)]
    unit.wake(Wake.ORDER)
    assert results(unit) == [OrderResult.DONE], "a second wake has no effect"


@both
def test_a_person_who_will_not_wait_says_so(kind: OrderKind, envelopes: Envelopes) -> None:
    unit = waiting(envelopes, 2)
    assert result(unit.order(kind, unread_to=END, despite_backlog=True)) is OrderResult.DONE
    assert unit.sequences == [2]


@both
def test_a_paused_partition_refuses_it(kind: OrderKind, envelopes: Envelopes) -> None:
    unit = waiting(envelopes, 2)
    outcome = unit.order(kind, unread_to=END, is_paused=True)
    assert outcome is not None
    assert outcome.result is OrderResult.REFUSED_BACKLOG
    assert "the partition is paused" in outcome.text
    assert result(unit.order(kind, is_paused=True)) is OrderResult.DONE, "nothing is unread"


@both
def test_what_is_refused_anyway_does_not_wait(kind: OrderKind, envelopes: Envelopes) -> None:
    unit = waiting(envelopes, 2)
    assert result(unit.order(kind, unread_to=END, waits_for="sequence:9")) is OrderResult.REFUSED_CHANGED
    retried = under_retry(envelopes, TransientError("not now"))
    assert result(retried.order(kind, unread_to=END)) is OrderResult.REFUSED_IMPOSSIBLE


@pytest.mark.parametrize("kind", [each for each in OrderKind if each not in KINDS and not each.is_of_partition])
def test_no_other_order_waits(kind: OrderKind, envelopes: Envelopes) -> None:
    unit = waiting(envelopes, 2)
    what = {"for_ms": HOUR, "until": unit.now + HOUR, "position": unit.unit.stash[0].offset}
    unit.order(kind, unread_to=END, **what)
    assert unit.unit.waiting_order is None


@pytest.mark.parametrize("kind", [each for each in OrderKind if not each.is_of_partition])
def test_another_order_of_the_unit_is_refused_meanwhile(kind: OrderKind, envelopes: Envelopes) -> None:
    unit = ordered(envelopes)
    what = {"for_ms": HOUR, "until": unit.now + HOUR, "position": unit.unit.stash[0].offset}
    outcome = unit.order(kind, **what)
    assert outcome is not None
    assert (outcome.result, outcome.text) == (
        OrderResult.REFUSED_WAITING,
        "the release ordered by anna waits until unread records are read",
    )
    unit.wake(Wake.ORDER)
    assert results(unit) == [OrderResult.REFUSED_WAITING, OrderResult.DONE]


@both
def test_one_that_does_not_wait_passes_it_and_ends_it(kind: OrderKind, envelopes: Envelopes) -> None:
    unit = ordered(envelopes, kind, 2, 4)
    assert result(unit.order(kind, unread_to=END + 1, despite_backlog=True)) is OrderResult.DONE
    assert results(unit) == [OrderResult.DONE, OrderResult.REFUSED_CHANGED]
    assert unit.unit.waiting_order is None


@both
def test_the_missing_envelope_ends_it(kind: OrderKind, envelopes: Envelopes) -> None:
    unit = ordered(envelopes, kind)
    unit.arrive(envelopes(1))
    assert (unit.sequences, results(unit)) == ([1, 2], [OrderResult.REFUSED_CHANGED])
    assert "the missing envelopes came" in last(unit).text
    unit.wake(Wake.ORDER)
    assert len(unit.outcomes) == 1


@both
def test_a_unit_that_waits_for_another_number_ends_it(kind: OrderKind, envelopes: Envelopes) -> None:
    unit = ordered(envelopes, kind, 2, 4)
    unit.arrive(envelopes(1))
    assert results(unit) == [OrderResult.REFUSED_CHANGED]
    assert "it waits for sequence:3 since" in last(unit).text
    assert kind_of(unit) is WaitKind.DEADLINE


@both
def test_the_missing_envelope_that_comes_with_the_last_record_ends_it(kind: OrderKind, envelopes: Envelopes) -> None:
    unit = ordered(envelopes, kind)
    unit.arrive_together(envelopes(1), wakes=(Wake.ORDER,))
    assert (unit.sequences, results(unit)) == ([1, 2], [OrderResult.REFUSED_CHANGED])
    assert not any(each.ordered for each in unit.marks)


def test_other_arrivals_do_not(envelopes: Envelopes) -> None:
    unit = ordered(envelopes)
    unit.arrive(envelopes(3), envelopes(5))
    assert (kind_of(unit), unit.outcomes) == (WaitKind.ORDERED, [])
    unit.wake(Wake.ORDER)
    assert unit.sequences == [2, 3, 5]


def test_the_deadline_is_suspended_and_counts_again_after_a_refusal(envelopes: Envelopes) -> None:
    unit = ordered(envelopes)
    arrived_at = unit.now
    unit.wake(Wake.DEADLINE, after_ms=HOUR // 10 - 1)
    assert unit.sequences == []
    unit.now = arrived_at + BACKLOG_WAIT_MS
    unit.wake(Wake.HOLD_OVER)
    assert results(unit) == [OrderResult.REFUSED_BACKLOG]
    assert f"the records up to offset {END}" in last(unit).text
    assert unit.last is not None
    assert unit.last.waits is not None
    assert (unit.last.waits.kind, unit.last.waits.wakes_at) == (WaitKind.DEADLINE, arrived_at + 21_000)
    unit.wake(Wake.DEADLINE)
    assert unit.sequences == [2]


def test_records_that_are_read_in_the_last_moment_count(envelopes: Envelopes) -> None:
    unit = ordered(envelopes)
    unit.wake(Wake.ORDER, after_ms=2 * BACKLOG_WAIT_MS)
    assert results(unit) == [OrderResult.DONE]


def test_a_clock_that_was_ahead_does_not_make_it_wait_for_ever(envelopes: Envelopes) -> None:
    unit = ordered(envelopes)
    unit.now -= 25 * HOUR
    unit.wake(Wake.HOLD_OVER)
    assert results(unit) == [OrderResult.REFUSED_BACKLOG]


def test_a_head_under_retry_lets_it_wait_on(envelopes: Envelopes) -> None:
    unit = waiting(envelopes, 2, strategy="STRICT_SEQUENCE")
    assert unit.order(OrderKind.RELEASE, unread_to=END) is None
    other = envelopes(1, flow="B")
    unit.handler.fail(other, TransientError("not now"))
    unit.arrive(other)
    unit.wake(Wake.ORDER)
    assert (kind_of(unit), unit.outcomes) == (WaitKind.RETRY, [])
    unit.wake(Wake.RETRY, after_ms=60_000)
    assert (kind_of(unit), unit.outcomes) == (WaitKind.ORDERED, [])
    unit.wake(Wake.ORDER)
    assert results(unit) == [OrderResult.DONE]


def test_a_server_that_is_away_until_its_time_is_over_ends_it(envelopes: Envelopes) -> None:
    unit = ordered(envelopes, OrderKind.RELEASE, 3)
    one = envelopes(1)
    unit.handler.fail(one, *[DependencyUnavailable("register")] * 2)
    unit.arrive(one)
    unit.wake(Wake.ORDER)
    assert (kind_of(unit), unit.outcomes) == (WaitKind.DEPENDENCY, [])
    unit.wake(Wake.RETRY, after_ms=BACKLOG_WAIT_MS)
    assert results(unit) == [OrderResult.REFUSED_IMPOSSIBLE]
    assert "under retry" in last(unit).text


def test_a_call_under_way_lets_it_wait_on(envelopes: Envelopes) -> None:
    unit = drive("STRICT_SEQUENCE")
    unit.waits = unit.reincarnates = True
    unit.arrive(envelopes(2, flow="A"))
    assert unit.order(OrderKind.RELEASE, unread_to=END) is None
    unit.arrive(envelopes(1, flow="B"))
    unit.wake(Wake.ORDER)
    assert (kind_of(unit), unit.outcomes) == (WaitKind.CALL, [])
    unit.answer()
    assert (kind_of(unit), unit.outcomes) == (WaitKind.ORDERED, [])
    unit.wake(Wake.ORDER)
    assert results(unit) == [OrderResult.DONE]
    unit.answer()
    assert unit.handled == [("B", 1), ("A", 2)]


def test_a_remainder_is_worked_off_first(envelopes: Envelopes) -> None:
    unit = waiting(envelopes, 3, 4, 6)
    assert unit.order(OrderKind.RELEASE, unread_to=END) is None
    unit.budget = 1
    unit.arrive_together(envelopes(1), envelopes(2))
    unit.wake(Wake.ORDER)
    assert unit.has_remainder
    assert unit.outcomes == []
    unit.let_out_the_rest()
    assert (unit.sequences, results(unit)) == ([1, 2, 3, 4], [OrderResult.REFUSED_CHANGED])
    assert kind_of(unit) is WaitKind.DEADLINE


def test_a_full_stash_ends_it(envelopes: Envelopes) -> None:
    unit = waiting(envelopes, 2, stash_limit=2)
    assert unit.order(OrderKind.RELEASE, unread_to=END) is None
    unit.arrive(envelopes(3), envelopes(4))
    assert (unit.sequences, results(unit)) == ([2, 3, 4], [OrderResult.REFUSED_CHANGED])


def test_an_order_on_which_the_service_fails_is_refused(envelopes: Envelopes, monkeypatch: pytest.MonkeyPatch) -> None:
    unit = ordered(envelopes)

    def broken(*_: object) -> None:
        raise RuntimeError("a mistake of ours")

    monkeypatch.setattr("resequencer.turn.orders.execute", broken)
    turn = take_careful_turn(unit.unit, (), (Wake.ORDER,), unit.now, unit.context)
    assert [each.result for each in turn.output if isinstance(each, OrderOutcome)] == [OrderResult.REFUSED_IMPOSSIBLE]
    assert unit.unit.waiting_order is None


# Stored


def stored_format(unit: Driven) -> int:
    assert unit.stored is not None
    return unit.stored.state[1]


def test_only_a_unit_with_a_waiting_order_has_the_newest_format(envelopes: Envelopes) -> None:
    unit = waiting(envelopes, 2)
    assert stored_format(unit) == 1
    unit.order(OrderKind.RELEASE, unread_to=END)
    assert stored_format(unit) == 5
    unit.wake(Wake.ORDER)
    assert stored_format(unit) == 1


@pytest.mark.parametrize("change", [lambda body: body, lambda body: body[:1] + b"\x06" + body[2:]])
def test_it_comes_back_with_its_unit_and_a_newer_one_is_refused(change: Callable[[bytes], bytes], envelopes: Envelopes) -> None:
    unit = ordered(envelopes)
    before = unit.unit.waiting_order
    assert unit.stored is not None
    unit.stored = replace(unit.stored, state=change(unit.stored.state))
    if stored_format(unit) == 6:
        with pytest.raises(StorageRefused, match="format 6, and this version reads formats up to 5"):
            unit.reincarnate()
        return
    unit.reincarnate()
    assert unit.unit.waiting_order == before
