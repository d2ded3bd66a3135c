"""The orders of a partition: which are for units, which for the partition, and which are refused at once."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from guardian.partition_orders import (
    OrderRules,
    PartitionOrders,
    Pause,
    TakenOrders,
    is_paused,
    lost_by_heal,
    paused_ms,
    pauses_by_this_clock,
    take_orders,
)
from guardian.ports import OrderBatch, OrderRecord
from resequencer.order import Order, OrderKind, OrderResult, Stage, encode_order
from resequencer.unit import Ordered

RELEASE = Order(id="1", kind=OrderKind.RELEASE, by="anna", because="why", at=1, unit="a", waits_for="sequence:1", since=1)
PAUSE = Order(id="2", kind=OrderKind.PAUSE, by="anna", because="why", at=1)
RESUME = Order(id="3", kind=OrderKind.RESUME_PARTITION, by="ben", because="why", at=1)
NOW = 1_000


def take(*orders: Order | bytes, before: PartitionOrders | None = None, rules: OrderRules | None = None) -> TakenOrders:
    values = [each if isinstance(each, bytes) else encode_order(each) for each in orders]
    batch = OrderBatch(tuple(OrderRecord(10 + at, value) for at, value in enumerate(values)), 10 + len(values))
    return take_orders(before or PartitionOrders(), batch, rules or OrderRules(), NOW, unread_to=700)


def results(taken: TakenOrders) -> list[tuple[int, OrderResult]]:
    return [(each.order_offset, each.result) for each in taken.outcomes]


def test_orders_of_units_are_passed_on_in_their_order_with_the_backlog() -> None:
    second = replace(RELEASE, id="2", kind=OrderKind.RESUME)
    taken = take(RELEASE, second, rules=OrderRules(backlog_wait_ms=60_000))
    assert taken.of_units["a"] == [
        Ordered(RELEASE, 10, NOW, 700, NOW + 60_000),
        Ordered(second, 11, NOW, 700, NOW + 60_000),
    ]
    assert taken.after.next_offset == 12
    assert taken.outcomes == []


def test_orders_of_a_paused_partition_may_not_wait() -> None:
    taken = take(RELEASE, PAUSE, RELEASE, RESUME, RELEASE)
    assert [each.until is None for each in taken.of_units["a"]] == [False, True, False]


def test_proposals_and_rejections_have_no_outcome() -> None:
    taken = take(replace(RELEASE, stage=Stage.PROPOSED), replace(RELEASE, stage=Stage.REJECTED))
    assert (dict(taken.of_units), taken.outcomes, taken.after.next_offset) == ({}, [], 12)


PROPOSED = replace(RELEASE, stage=Stage.PROPOSED)
APPROVED, REJECTED = replace(RELEASE, approved_by="ben"), replace(RELEASE, stage=Stage.REJECTED, by="cleo")


@pytest.mark.parametrize("is_taken_over", [False, True])
@pytest.mark.parametrize("first", [APPROVED, REJECTED])
@pytest.mark.parametrize("second", [APPROVED, replace(APPROVED, approved_by="dora"), RELEASE])
def test_the_first_decision_on_an_id_counts(first: Order, second: Order, is_taken_over: bool) -> None:
    if is_taken_over:
        begun = take(PROPOSED, first)
        taken = take(second, before=PartitionOrders.decode(begun.after.encode()))
        executed = [*begun.of_units.get("a", ()), *taken.of_units.get("a", ())]
    else:
        taken = take(PROPOSED, first, second)
        executed = [*taken.of_units.get("a", ())]
    assert [each.order for each in executed] == ([first] if first is APPROVED else [])
    (outcome,) = taken.outcomes
    assert (outcome.order, outcome.result) == (second, OrderResult.REFUSED_DECIDED)
    assert ("rejected by cleo" if first is REJECTED else "approved by ben") in outcome.text


def test_a_rejection_after_an_approval_and_an_order_that_no_second_person_approved_decide_nothing() -> None:
    same = replace(RELEASE, approved_by="Anna")
    taken = take(same, APPROVED, REJECTED, rules=OrderRules(frozenset({OrderKind.RELEASE})))
    assert [each.order for each in taken.of_units["a"]] == [APPROVED]
    assert results(taken) == [(10, OrderResult.REFUSED_NOT_APPROVED)]


DAY = 86_400_000


def after_decisions(before: PartitionOrders, *looks: tuple[int, list[str]]) -> PartitionOrders:
    """Return the state after rejections with these ids, in looks at these instants."""
    for at, ids in looks:
        batch = OrderBatch(tuple(OrderRecord(0, encode_order(replace(REJECTED, id=each))) for each in ids), 0)
        before = take_orders(before, batch, OrderRules(), at).after
    return before


def test_decisions_are_kept_for_a_day_and_are_bounded() -> None:
    first = after_decisions(PartitionOrders(), *((NOW + at, [f"{at}"]) for at in range(40)))
    assert len(first.decided) == 40
    later = after_decisions(first, *((NOW + DAY + 10 + at, [f"later {at}"]) for at in range(16)))
    assert len(later.decided) == 16 + 29, "eleven are older than a day"
    many = after_decisions(later, (NOW + DAY + 100, [f"many {number}" for number in range(1_100)]))
    assert len(many.decided) == 1_000


@pytest.mark.parametrize("ahead_ms", [2 * DAY, 365 * DAY, -365 * DAY])
def test_a_clock_that_is_wrong_for_a_moment_makes_no_decision_forgotten(ahead_ms: int) -> None:
    first = after_decisions(PartitionOrders(), (NOW, [f"{number}" for number in range(40)]))
    wrong = after_decisions(first, (NOW + ahead_ms, [f"wrong {number}" for number in range(40)]), (NOW + 1, ["right again"]))
    taken = take(replace(APPROVED, id="0"), replace(APPROVED, id="wrong 0"), before=wrong)
    assert [each.result for each in taken.outcomes] == [OrderResult.REFUSED_DECIDED] * 2


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (b"no json", "malformed"),
        (b"{}", "missing required field"),
        (encode_order(RELEASE).replace(b"release", b"explode"), "explode"),
        (encode_order(replace(RELEASE, since=None)), "release needs since"),
        (encode_order(replace(RELEASE, unit=None)), "release needs unit"),
        (encode_order(RELEASE).replace(b"1970-01-01T00:00:00.001Z", b"yesterday"), "yesterday"),
        (encode_order(replace(RELEASE, kind=OrderKind.HOLD, for_ms=25 * 3_600_000)), "86400000"),
        (b"[" * 100_000, "65536 at most"),
        (b"[" * 60_000, ""),
        (b"\xff\xfe", ""),
    ],
)
def test_an_unreadable_order_has_an_outcome_and_holds_up_nothing(value: bytes, expected: str) -> None:
    taken = take(value, RELEASE)
    (outcome,) = taken.outcomes
    assert (outcome.order, outcome.order_offset, outcome.result) == (None, 10, OrderResult.REFUSED_UNREADABLE)
    assert expected in outcome.text
    assert len(taken.of_units["a"]) == 1


@given(st.binary(max_size=200))
def test_no_bytes_stop_the_worker(value: bytes) -> None:
    assert len(take(value).outcomes) == 1


@pytest.mark.parametrize("approved_by", [None, "anna", "Anna", "\uff21NNA"])
def test_an_order_that_needs_two_persons_is_refused_with_one(approved_by: str | None) -> None:
    rules = OrderRules(frozenset({OrderKind.RELEASE}))
    taken = take(replace(RELEASE, approved_by=approved_by), rules=rules)
    assert results(taken) == [(10, OrderResult.REFUSED_NOT_APPROVED)]
    assert not taken.of_units
    assert take(replace(RELEASE, approved_by="ben"), rules=rules).of_units


def test_without_durability_only_a_partition_takes_orders() -> None:
    taken = take(RELEASE, PAUSE, rules=OrderRules(is_durable=False))
    assert results(taken) == [(10, OrderResult.REFUSED_IMPOSSIBLE), (11, OrderResult.DONE)]
    assert taken.after.is_paused


def test_a_pause_and_its_end_are_remembered() -> None:
    paused = take(PAUSE)
    assert results(paused) == [(10, OrderResult.DONE)]
    assert paused.after.pauses == (Pause(NOW, None, "anna"),)
    again = take(PAUSE, before=paused.after)
    assert results(again) == [(10, OrderResult.REFUSED_IMPOSSIBLE)]
    resumed = take(RESUME, before=again.after)
    assert results(resumed) == [(10, OrderResult.DONE)]
    assert resumed.after.pauses == (Pause(NOW, NOW, "anna"),)
    assert results(take(RESUME, before=resumed.after)) == [(10, OrderResult.REFUSED_IMPOSSIBLE)]


def test_the_header_has_no_text_before_the_first_order_and_keeps_everything_after_it() -> None:
    assert PartitionOrders().encode() == ""
    assert PartitionOrders.decode("") == PartitionOrders()
    some = PartitionOrders(17, 3, (Pause(1, 2, "anna"), Pause(5, None, "ben")))
    assert PartitionOrders.decode(some.encode()) == some


def test_a_deadline_rests_for_the_part_of_a_pause_in_which_its_unit_waited() -> None:
    pauses = (Pause(100, 200), Pause(500, 600), Pause(900, None))
    assert [paused_ms(pauses, since) for since in (0, 100, 150, 200, 550, 1_000)] == [200, 200, 150, 100, 50, 0]
    assert is_paused(pauses)
    assert not is_paused(pauses[:2])


def test_a_pause_that_ended_in_the_future_ends_when_that_is_noticed_and_the_next_order_of_the_partition_stores_it() -> None:
    a_second, a_day = NOW + 1_000, NOW + DAY
    pauses = (Pause(1, a_second), Pause(5, a_day, "ben"), Pause(7, None))
    assert pauses_by_this_clock(pauses, NOW) == (Pause(1, a_second), Pause(5, NOW, "ben"), Pause(7, None))
    assert take(PAUSE, before=PartitionOrders(pauses=pauses[:2])).after.pauses[1] == Pause(5, NOW, "ben")


def test_old_pauses_are_forgotten() -> None:
    state = PartitionOrders()
    for _ in range(40):
        state = take(PAUSE, RESUME, before=state).after
    assert len(state.pauses) == 16


def test_what_a_storage_lost_is_told_of_each_order_before_the_end() -> None:
    records = [OrderRecord(at, value) for at, value in enumerate([encode_order(RELEASE), b"?", encode_order(PAUSE)])]
    lost = lost_by_heal(records, 2, NOW)
    assert [(each.order, each.order_offset, each.result) for each in lost] == [
        (RELEASE, 0, OrderResult.LOST_BY_HEAL),
        (None, 1, OrderResult.LOST_BY_HEAL),
    ]
