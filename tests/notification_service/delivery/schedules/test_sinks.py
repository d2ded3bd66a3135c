"""Requests and progress are one step: each key once at each tick, whichever worker makes it, and wherever a worker dies."""

from __future__ import annotations

from itertools import count
from pathlib import Path

import pytest

from notification_service.delivery.schedules import runner as runners
from notification_service.delivery.schedules.runner import OtherExpression, ScheduleRunner, TickInFuture
from notification_service.delivery.schedules.settings import Missed
from notification_service.delivery.schedules.sink import ScheduleBusy
from notification_service.lookups.shapes import NoRelease
from resequencer.clock import instant_text
from tests.notification_service.delivery.schedules.sinks import HOUR_MS, NOON, DyingSink, Killed, Store, Worlds, runner

KEYS = [f"k{number}" for number in range(7)]
TICKS = [instant_text(NOON + number * HOUR_MS) for number in range(4)]
YIELD_MS = 11_000


@pytest.fixture
def clock() -> Worlds:
    return Worlds()


@pytest.fixture
def two_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A portion has two requests."""
    monkeypatch.setattr(runners, "_REQUESTS", 2)


def look(each: ScheduleRunner) -> None:
    each.look(lambda: False)


def test_each_key_has_one_request_at_each_tick(store: Store, clock: Worlds, two_at_once: None) -> None:
    worker = runner(clock, store.sink("a"), KEYS)
    look(worker)
    assert store.made() == []
    for tick in range(2):
        clock.advance(HOUR_MS if tick else 1_000)
        look(worker)
        look(worker)
    assert sorted(store.made()) == sorted((key, tick) for key in KEYS for tick in TICKS[:2])
    report = worker.report()
    assert (report.tick, report.made, report.total, report.overdue_since) == (NOON + HOUR_MS, 7, 14, None)
    assert report.next_tick == NOON + 2 * HOUR_MS


def test_two_workers_make_one_tick(store: Store, clock: Worlds, two_at_once: None) -> None:
    workers = [runner(clock, store.sink(name), KEYS) for name in "ab"]
    for each in workers:
        look(each)
    for _ in range(3):
        clock.advance(HOUR_MS)
        for each in (*workers, *reversed(workers)):
            look(each)
    assert sorted(store.made()) == sorted((key, tick) for key in KEYS for tick in TICKS[:3])
    assert [each.report().total for each in workers] == [21, 21]


def test_a_tick_while_all_were_down_is_made_once(store: Store, clock: Worlds) -> None:
    look(runner(clock, store.sink("a"), KEYS))
    clock.advance(3 * HOUR_MS)
    look(runner(clock, store.sink("b"), KEYS))
    assert sorted(store.made()) == sorted((key, TICKS[2]) for key in KEYS)


def test_a_missed_tick_is_left_out_if_none_is_wanted(store: Store, clock: Worlds) -> None:
    look(runner(clock, store.sink("a"), KEYS, Missed.NONE))
    clock.advance(2 * HOUR_MS + 120_000)
    late = runner(clock, store.sink("b"), KEYS, Missed.NONE)
    look(late)
    assert store.made() == []
    clock.advance(HOUR_MS)
    look(late)
    assert {tick for _, tick in store.made()} == set()
    clock.advance(HOUR_MS - 180_000)
    look(late)


MOMENTS = [(number, is_behind) for number in range(1, 6) for is_behind in (False, True)]
"""Those of a tick of seven keys in portions of two: before and behind each of its five changes of the store."""


@pytest.mark.parametrize(("dies_at", "is_behind"), MOMENTS)
def test_a_worker_that_dies_at_any_moment_of_a_tick_leaves_each_key_once(
    store: Store, clock: Worlds, two_at_once: None, dies_at: int, is_behind: bool
) -> None:
    look(runner(clock, store.sink("a"), KEYS))
    clock.advance(1_000)
    with pytest.raises(Killed):
        look(runner(clock, DyingSink(store.sink("b"), dies_at, is_behind=is_behind), KEYS))
    heir = runner(clock, store.sink("c"), KEYS)
    for _ in range(3):
        look(heir)
        clock.advance(YIELD_MS)
        store.let_go()
    assert sorted(store.made()) == sorted((key, TICKS[0]) for key in KEYS)


def test_a_worker_that_stood_still_in_a_tick_makes_no_request_twice(store: Store, clock: Worlds, two_at_once: None) -> None:
    look(runner(clock, store.sink("z"), KEYS))
    clock.advance(1_000)
    slow, looks = store.sink("a"), count()

    class Still:
        """Stands still after its first portion, until another worker has made the tick."""

        find, begin, end, count_waiting = slow.find, slow.begin, slow.end, slow.count_waiting

        def store(self, *portion: object) -> None:
            if next(looks) == 1:
                other = runner(clock, store.sink("b"), KEYS)
                for _ in range(3):
                    look(other)
                    clock.advance(YIELD_MS)
                    store.let_go()
                assert other.report().overdue_since is None
            slow.store(*portion)  # type: ignore[arg-type]

    look(runner(clock, Still(), KEYS))  # type: ignore[arg-type]
    assert sorted(store.made()) == sorted((key, TICKS[0]) for key in KEYS)


def test_a_tick_under_way_is_left_to_its_worker_while_it_moves(store: Store, clock: Worlds, two_at_once: None) -> None:
    look(runner(clock, store.sink("z"), KEYS))
    clock.advance(1_000)
    busy = runner(clock, store.sink("a"), KEYS)
    asked = count()
    busy.look(lambda: next(asked) == 1)  # One portion.
    other = runner(clock, store.sink("b"), KEYS)
    look(other)
    assert len(store.made()) == 2
    clock.advance(YIELD_MS)
    look(other)
    assert len(store.made()) == 7


def test_a_tick_that_meets_another_workers_right_waits(store: Store, clock: Worlds) -> None:
    look(runner(clock, store.sink("z"), KEYS))
    clock.advance(1_000)

    class Busy:
        def __init__(self) -> None:
            self.asked = 0
            sink = store.sink("a")
            self.find, self.store, self.end, self.count_waiting = sink.find, sink.store, sink.end, sink.count_waiting

        def begin(self) -> None:
            self.asked += 1
            raise ScheduleBusy("hourly")

    sink = Busy()
    worker = runner(clock, sink, KEYS)  # type: ignore[arg-type]
    for _ in range(5):
        look(worker)
    assert sink.asked == 1
    clock.advance(YIELD_MS)
    look(worker)
    assert sink.asked == 2


def test_workers_with_two_expressions_do_not_change_it_in_turn(store: Store, clock: Worlds) -> None:
    old = runner(clock, store.sink("a"), KEYS)
    look(old)
    new = runner(clock, store.sink("b"), KEYS, cron="30 * * * *")
    look(new)
    clock.advance(1_000)
    with pytest.raises(OtherExpression, match=r"as 30 . . . . .UTC.; give all workers one configuration"):
        look(old)
    clock.advance(1_800_000)
    look(new)
    assert {tick for _, tick in store.made()} == {instant_text(NOON + 1_800_000)}
    with pytest.raises(OtherExpression):
        look(old)


def test_a_tick_without_lookups_takes_no_right_from_other_workers(
    store: Store, clock: Worlds, monkeypatch: pytest.MonkeyPatch
) -> None:
    look(runner(clock, store.sink("z"), KEYS))
    clock.advance(1_000)
    dying = DyingSink(store.sink("a"), 1, is_behind=False)  # Its first change of the store would end it.
    worker = runner(clock, dying, KEYS)

    def open_none(_release: str | None) -> None:
        raise NoRelease(Path("lookups"))

    monkeypatch.setattr(worker._keys, "open", open_none)
    for _ in range(3):
        with pytest.raises(NoRelease):
            look(worker)
    monkeypatch.undo()
    with pytest.raises(Killed):
        look(worker)


YEAR = 365 * 86_400_000


def test_a_clock_that_was_a_year_ahead_costs_no_tick_and_makes_none_twice(store: Store, clock: Worlds) -> None:
    """The worker begins with a wrong clock, which is right afterwards: no clock that it knew tells it."""
    clock.advance(1_000)
    look(runner(clock, store.sink("a"), KEYS[:1]))
    clock.ahead = YEAR
    look(runner(clock, store.sink("b"), KEYS[:1]))
    clock.ahead = 0
    worker = runner(clock, store.sink("c"), KEYS[:1])
    for _ in range(3):
        look(worker)
        clock.advance(HOUR_MS)
    look(worker)
    made = [tick for _, tick in store.made()]
    assert len(made) == len(set(made))
    assert set(made) >= set(TICKS[1:3])


def test_before_the_clock_is_trusted_a_schedule_says_why_it_waits(store: Store, clock: Worlds) -> None:
    clock.ahead = YEAR
    look(runner(clock, store.sink("a"), KEYS))
    clock.ahead = 0
    worker = runner(clock, store.sink("b"), KEYS[:1], trusted_ms=HOUR_MS)
    with pytest.raises(TickInFuture, match=r"its last tick is 2027-.*It continues from now"):
        look(worker)
    clock.advance(HOUR_MS - 1)
    with pytest.raises(TickInFuture):
        look(worker)
    clock.advance(1)
    look(worker)
    clock.advance(HOUR_MS)
    look(worker)
    assert len(store.made()) == 1
