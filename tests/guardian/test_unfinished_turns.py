"""The remainder of a turn gets more turns: one output budget in each cycle, in order, and nothing else is delayed."""

import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from harness.actors.asking import FAR, P0, P1, Asked
from harness.service_under_test import FakeClock, Service, Teller
from msgspec.structs import replace

from guardian.actor_gateway import Decided
from guardian.timers import UnfinishedTurns
from guardian.unit_registry import UnitRegistrySettings
from notification_service.payments.envelope import DataEnvelope
from notification_service.payments.payment_data import PaymentData
from resequencer.batch import Batch, UnitKey
from resequencer.clock import Instant
from resequencer.errors import DependencyUnavailable, TransientError
from resequencer.handler import Handled, Marks
from resequencer.storage_port import WaitKind, Waits

ONE = 1_026
"""The size of one notification of the recorder."""

A, B, C = (UnitKey(P0, name) for name in "abc")


@pytest.fixture
def new_asked() -> Iterator[Callable[..., Asked]]:
    made: list[Asked] = []

    def make(**registry: object) -> Asked:
        made.append(Asked(**registry))
        return made[-1]

    yield make
    for each in made:
        each.actors.close()


def left_over(stashed_bytes: int = 10, at: Instant = 0) -> Waits:
    return Waits(at, WaitKind.REMAINDER, 0, "its turn to leave", "SEQUENCE", 1, stashed_bytes)


def loose(asked: Asked, *units: str, count: int = 5) -> Decided:
    """Let all envelopes of these units wait for the first, and then send the first."""
    asked.poll(*(asked.envelope(unit, number) for unit in units for number in range(2, count + 1)))
    return asked.poll(*(asked.envelope(unit, 1) for unit in units))


def cycles(asked: Asked, most: int = 100) -> list[list[str]]:
    """Return the output of each of the next cycles, until a cycle has none."""
    notified = []
    for _ in range(most):
        decided = asked.poll()
        if not decided.turns:
            break
        notified.append(asked.notified(decided))
    return notified


# In one cycle


def test_a_unit_lets_out_a_share_in_each_cycle_until_nothing_is_left_over(new_asked: Callable[..., Asked]) -> None:
    asked = new_asked(budget_bytes=2 * ONE)
    assert asked.notified(loose(asked, "a")) == ["a#1", "a#2"]
    assert cycles(asked) == [["a#3", "a#4"], ["a#5"]]


def test_what_comes_loose_in_many_units_at_once_is_let_out_by_many_cycles(new_asked: Callable[..., Asked]) -> None:
    asked = new_asked(budget_bytes=2 * ONE)
    units = [f"u{number}" for number in range(20)]
    notified = [asked.notified(loose(asked, *units)), *cycles(asked)]
    assert max(map(len, notified)) <= 6
    assert sum(map(len, notified)) == 100
    for unit in units:
        assert [each for some in notified for each in some if each.startswith(f"{unit}#")] == [f"{unit}#{n}" for n in range(1, 6)]


def test_what_arrives_when_the_cycle_has_let_out_all_it_may_is_kept_and_leaves_with_the_next(
    new_asked: Callable[..., Asked],
) -> None:
    asked = new_asked(budget_bytes=ONE)
    decided = asked.poll(*(asked.envelope(f"u{number}", 1) for number in range(5)))
    assert asked.notified(decided) == ["u0#1", "u1#1"]
    assert {each.kind for each in asked.waiting.values()} == {WaitKind.REMAINDER}
    assert cycles(asked) == [["u2#1"], ["u3#1"], ["u4#1"]]
    assert asked.waiting == {}


def test_a_unit_that_lets_out_many_shares_holds_up_no_other(new_asked: Callable[..., Asked]) -> None:
    asked = new_asked(budget_bytes=ONE)
    loose(asked, "a", count=50)
    for number in range(1, 20):
        decided = asked.poll(asked.envelope("b", number))
        assert asked.notified(decided) == [f"a#{number + 1}", f"b#{number}"]


def test_units_that_were_cut_off_take_turns(new_asked: Callable[..., Asked]) -> None:
    asked = new_asked(budget_bytes=ONE)
    loose(asked, "a", "b", count=3)
    assert cycles(asked) == [["a#2"], ["b#2"], ["a#3"], ["b#3"]]


def test_what_arrives_for_a_unit_that_stands_in_line_costs_it_neither_its_place_nor_its_order(
    new_asked: Callable[..., Asked],
) -> None:
    asked = new_asked(budget_bytes=ONE)
    loose(asked, "a", "b", count=2)
    assert asked.notified(asked.poll(asked.envelope("b", 3))) == ["a#2"]
    assert cycles(asked) == [["b#2"], ["b#3"]]


def test_whose_time_has_come_comes_before_what_arrives(new_asked: Callable[..., Asked]) -> None:
    asked = new_asked(budget_bytes=ONE)
    asked.poll(asked.envelope("late", 2))
    decided = asked.poll(*(asked.envelope(f"u{number}", 1) for number in range(3)), after_ms=21_000)
    assert asked.notified(decided) == ["late#2", "u0#1"]
    assert cycles(asked) == [["u1#1"], ["u2#1"]]


def test_a_deadline_that_finds_nothing_left_to_let_out_comes_again_and_waits_for_no_other_backlog(
    new_asked: Callable[..., Asked],
) -> None:
    asked = new_asked(budget_bytes=ONE)
    asked.poll(*(asked.envelope(f"late{number}", 2) for number in range(4)))
    assert asked.notified(asked.poll(after_ms=21_000)) == ["late0#2", "late1#2"]
    decided = asked.poll(read_to={P0: 0}, ends=FAR)
    assert asked.notified(decided) == ["late2#2", "late3#2"]


def test_an_attempt_that_finds_nothing_left_to_let_out_is_made_with_the_next_cycle(new_asked: Callable[..., Asked]) -> None:
    asked = new_asked(budget_bytes=ONE)
    slow = [asked.envelope(f"slow{number}", 1) for number in range(3)]
    for each in slow:
        asked.handler.fail(each, TransientError("away"))
    asked.poll(*slow)
    assert asked.notified(asked.poll(after_ms=3_000)) == ["slow0#1", "slow1#1"]
    assert asked.notified(asked.poll()) == ["slow2#1"]


def test_a_try_that_finds_nothing_left_to_let_out_says_nothing_of_its_server(new_asked: Callable[..., Asked]) -> None:
    asked = new_asked(budget_bytes=ONE)
    needy = asked.envelope("needy", 1)
    asked.handler.fail(needy, DependencyUnavailable("screening"))
    asked.poll(needy, *(asked.envelope(f"late{number}", 2) for number in range(2)))
    assert asked.notified(asked.poll(after_ms=30_000)) == ["late0#2", "late1#2"]
    assert asked.notified(asked.poll()) == ["needy#1"]


def test_what_was_left_over_is_due_whatever_the_clock_says(new_asked: Callable[..., Asked]) -> None:
    asked = new_asked(budget_bytes=ONE)
    loose(asked, "a", count=2)
    assert asked.notified(asked.poll(after_ms=-600_000)) == ["a#2"]


def test_what_was_left_over_is_told_as_due_at_once(new_asked: Callable[..., Asked]) -> None:
    asked = new_asked(budget_bytes=ONE)
    assert loose(asked, "a", count=2).next_wake_at == 0
    asked.poll()
    assert asked.poll().next_wake_at != 0


def test_payment_data_that_is_written_counts_for_it_is_in_the_same_commit(new_asked: Callable[..., Asked]) -> None:
    """A server accepts a commit up to a limit, and refuses a larger one each time."""
    asked = new_asked(budget_bytes=10_000)
    decided = asked.poll(*(asked.envelope(f"u{number}", 1, mds=["x" * 30_000]) for number in range(4)))
    assert asked.notified(decided) == ["u0#1"]
    assert cycles(asked) == [["u1#1"], ["u2#1"], ["u3#1"]]


# Without an actor


def test_a_successor_goes_on_where_a_unit_was_cut_off(new_asked: Callable[..., Asked]) -> None:
    before = new_asked(budget_bytes=ONE)
    loose(before, "a", "b", count=3)
    before.poll(before.envelope("a", 4))
    after = new_asked(budget_bytes=ONE)
    after.stored, after.waiting = before.stored, before.waiting
    after.arm(before.waiting)
    assert sorted(each for some in cycles(after) for each in some) == ["a#3", "a#4", "b#2", "b#3"]


def test_of_those_without_an_actor_only_so_many_are_loaded_as_may_let_something_out(new_asked: Callable[..., Asked]) -> None:
    before = new_asked(budget_bytes=ONE)
    loose(before, *(f"u{number}" for number in range(50)), count=2)
    after = new_asked(budget_bytes=ONE)
    after.stored, after.waiting = before.stored, before.waiting
    after.arm(before.waiting)
    after.poll()
    assert len(after.loaded[-1]) == 1


def test_a_dropped_partition_takes_what_was_left_over_along(new_asked: Callable[..., Asked]) -> None:
    asked = new_asked(budget_bytes=ONE)
    loose(asked, "a", count=2)
    asked.poll(asked.envelope("b", 1, P1))
    asked.drop(P0)
    assert cycles(asked) == []


# The queue


def test_who_is_new_stands_at_the_end_and_who_let_something_out_goes_there() -> None:
    line = UnfinishedTurns()
    for key in (A, B, C):
        line.note(key, left_over(), has_output=False)
    line.note(A, left_over(), has_output=True)
    line.note(B, left_over(), has_output=False)
    assert line.first(10, 1 << 30) == [B, C, A]
    line.note(B, None, has_output=True)
    line.note(C, replace(left_over(), kind=WaitKind.DEADLINE), has_output=True)
    assert line.first(10, 1 << 30) == [A]
    assert len(line) == 1


def test_of_the_line_as_many_are_named_as_may_be_loaded_and_one_at_least() -> None:
    line = UnfinishedTurns()
    for key in (A, B, C):
        line.note(key, left_over(100), has_output=False)
    assert line.first(2, 1 << 30) == [A, B]
    assert line.first(10, 150) == [A, B]
    assert line.first(10, 1) == [A]
    assert line.stashed_bytes == 300
    line.note(A, left_over(500), has_output=False)
    assert line.stashed_bytes == 700
    line.drop(P0)
    assert (line.stashed_bytes, len(line)) == (0, 0)


# The limit of a cycle


def test_of_two_shares_one_is_kept_from_what_was_left_over() -> None:
    batch = Batch(0, 100)
    assert shares(batch) == (100, 100)
    batch.note(wrote(160), is_remainder=True)
    assert shares(batch) == (0, 100)
    batch.note(wrote(70), is_remainder=False)
    assert shares(batch) == (0, 30)
    batch.note(wrote(90), is_remainder=False)
    assert shares(batch) == (0, 0)


def test_what_is_not_used_of_one_is_there_for_all_else() -> None:
    batch = Batch(0, 100)
    batch.note(wrote(150), is_remainder=False)
    assert shares(batch) == (100, 50)


def shares(batch: Batch) -> tuple[int, int]:
    """Return what the next turn of a remainder and the next other turn may let out."""
    return batch.for_remainders, batch.for_others


def wrote(written_bytes: int) -> Any:
    return SimpleNamespace(written_bytes=written_bytes)


# The cycle


class Verbose(Teller):
    """A handler whose notifications have half a megabyte each."""

    def handle(self, envelope: DataEnvelope, data: PaymentData, marks: Marks, now: Instant) -> Handled:
        handled = super().handle(envelope, data, marks, now)
        return Handled(tuple(replace(each, value=each.value[:-1] + b" " * 500_000 + b"}") for each in handled.notifications))


@pytest.fixture
def new_service(tmp_path: Path) -> Iterator[Callable[..., Service]]:
    made: list[Service] = []

    def make(budget_bytes: int) -> Service:
        made.append(Service(tmp_path / str(budget_bytes), registry=UnitRegistrySettings(budget_bytes=budget_bytes)))
        made[-1].handler = Verbose(made[-1].clock)
        return made[-1].start()

    yield make
    for each in made:
        each.kill()


@pytest.mark.slow
def test_a_stash_that_comes_loose_takes_the_memory_of_some_shares(new_service: Callable[..., Service]) -> None:
    """One budget holds two notifications of half a megabyte; forty leave in all."""
    peaks = []
    for budget_bytes in (1 << 40, 1_000_000):
        service = new_service(budget_bytes)
        service.tell("u", *range(2, 41))
        service.run()
        service.tell("u", 1)
        tracemalloc.start()
        service.run()
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert service.sequences("u") == list(range(1, 41))
    assert peaks[0] > 40_000_000
    assert peaks[1] < 10_000_000


@pytest.mark.slow
def test_while_more_is_left_over_than_a_cycle_lets_out_one_record_is_read_at_a_time(
    new_service: Callable[..., Service],
) -> None:
    service = new_service(1_000)
    service.tell("u", *range(1, 101))
    service.cycle.run_once()
    before = service.cycle.metrics.counts["records"]
    for _ in range(10):
        service.cycle.run_once()
    assert service.cycle.metrics.counts["records"] == before + 10
    service.run(500)
    assert service.sequences("u") == list(range(1, 101))


def test_a_crash_while_something_is_left_over_is_an_ordinary_one(new_service: Callable[..., Service]) -> None:
    service = new_service(1_000_000)
    service.tell("u", *range(2, 21))
    service.run()
    service.tell("u", 1)
    for _ in range(3):
        service.cycle.run_once()
        service.kill()
        service.start()
    service.tell("u", 21)
    service.run()
    assert service.sequences("u") == list(range(1, 22))


@pytest.mark.slow
def test_what_was_left_over_does_not_make_records_look_slow(new_service: Callable[..., Service]) -> None:
    """A budget takes a second to leave here; a cycle still takes as many records as before."""
    service = new_service(20_000_000)
    clock, publish = service.clock, service.servers.transport.publish
    service.tell("u", *range(2, 121))
    service.run()

    def slowly(outputs: object) -> None:
        clock.advance(1_000)
        publish(outputs)  # type: ignore[arg-type]

    service.servers.transport.publish = slowly  # type: ignore[method-assign]
    service.tell("u", 1)
    for _ in range(3):
        service.cycle.run_once()
        assert isinstance(clock, FakeClock)
    assert service.cycle._batch_size.at_once > 100
