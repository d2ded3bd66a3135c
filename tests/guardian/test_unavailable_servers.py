"""Units that wait for a server: one tries first, more try after a success, and the intake continues meanwhile."""

import logging
from collections.abc import Callable

import pytest
from harness.actors.asking import P0, P1, Asked

from guardian.actor_gateway import Decided
from guardian.calls import Dependencies
from resequencer.batch import UnitKey
from resequencer.errors import DependencyUnavailable

GONE = DependencyUnavailable("sanctions-api")
API = "sanctions-api"


def keys(count: int) -> list[UnitKey]:
    return [UnitKey(P0, f"u-{number}") for number in range(count)]


class Server:
    """Due units that wait for a server, and the number of calls to it."""

    def __init__(self, waiting: int) -> None:
        self.known = Dependencies()
        self.waiting = dict.fromkeys(keys(waiting))
        self.is_there = False
        self.calls: list[int] = []
        for key in self.waiting:
            self.known.remember(None, API)
            self.known.queue(key, API)

    def look(self, now: int, limit: int = 1_000, failing: Callable[[int], bool] | None = None) -> int:
        """Let due units try; return how many did."""
        wave = list(self.known.take(now, limit))
        self.calls += [now] * len(wave)
        for place, key in enumerate(wave):
            fails = failing(place) if failing is not None else not self.is_there
            if not fails:
                del self.waiting[key]
                self.known.remember(API, None)
            self.known.note(key, API if fails else None, now)
            if fails:
                self.known.queue(key, API)
        return len(wave)


def test_while_it_is_away_one_tries_after_pauses_that_double_up_to_30_seconds() -> None:
    server = Server(10_000)
    for now in range(0, 200_000, 250):
        server.look(now)
    assert server.calls == [0, 1_000, 3_000, 7_000, 15_000, 31_000, 61_000, 91_000, 121_000, 151_000, 181_000]
    assert server.known.waiting == {API: 10_000}


def test_each_tries_in_its_turn() -> None:
    server = Server(3)
    tried = []
    for now in range(0, 200_000, 250):
        wave = list(server.known.take(now, 1_000))
        tried += wave
        for key in wave:
            server.known.note(key, API, now)
            server.known.queue(key, API)
    assert tried[:6] == keys(3) * 2


def test_once_it_is_back_twice_as_many_try_each_time_up_to_the_limit() -> None:
    server = Server(5_000)
    server.look(0)
    server.is_there = True
    assert server.look(999) == 0
    waves = [server.look(1_000, limit=500) for _ in range(20)]
    assert waves == [1, 2, 4, 8, 16, 32, 64, 128, 256, *[500] * 8, 489, 0, 0]
    assert server.known.waiting == {}
    assert server.known.next_at is None


def test_one_that_answers_most_of_the_time_is_called_by_many() -> None:
    server = Server(3_000)
    calls = sum(server.look(0, failing=lambda place: place % 10 == 9) for _ in range(40))
    assert calls > 3_000
    assert len(server.waiting) < 100


def test_one_that_answers_seldom_is_called_by_fewer_and_by_one_when_it_does_not_at_all() -> None:
    server = Server(100)
    server.is_there = True
    assert [server.look(0) for _ in range(4)] == [1, 2, 4, 8]
    assert server.look(0, failing=lambda place: place > 0) == 16
    assert server.look(0, failing=lambda place: place > 0) == 8
    server.is_there = False
    assert server.look(0) == 4
    assert server.look(999) == 0
    assert server.look(1_000) == 1


def test_two_servers_do_not_wait_for_each_other() -> None:
    known, (one, other) = Dependencies(), keys(2)
    for key, name in ((one, "a"), (other, "b")):
        known.remember(None, name)
        known.queue(key, name)
    assert list(known.take(0, 10)) == [one, other]
    known.note(one, "a", 0)
    known.note(other, None, 0)
    known.remember("b", None)
    assert known.waiting == {"a": 1}


def test_a_clock_that_was_set_back_delays_no_attempt() -> None:
    server = Server(2)
    server.look(1_000_000)
    assert server.look(5_000) == 1


def test_units_of_a_partition_that_goes_are_forgotten_and_others_try() -> None:
    known = Dependencies()
    mine, theirs = UnitKey(P0, "u"), UnitKey(P1, "u")
    for key in (theirs, mine):
        known.remember(None, API)
        known.queue(key, API)
    assert list(known.take(0, 10)) == [theirs]
    known.drop(P1)
    known.remember(API, None)
    assert list(known.take(0, 10)) == [mine]


def test_one_that_begins_to_wait_for_another_server_is_no_longer_due_for_the_first() -> None:
    known, (unit,) = Dependencies(), keys(1)
    known.remember(None, "a")
    known.queue(unit, "a")
    known.remember("a", "b")
    known.note(unit, "b", 0)
    assert list(known.take(10**9, 10)) == []
    known.queue(unit, "b")
    assert list(known.take(10**9, 10)) == [unit]


# With the guardian


def test_a_unit_that_waits_for_a_server_is_woken_when_its_pause_is_over(asked: Asked) -> None:
    first = asked.envelope("u", 1)
    asked.handler.fail(first, GONE)
    assert asked.notified(asked.poll(first, asked.envelope("v", 1))) == ["v#1"]
    assert asked.report_units().unavailable == {API: 1}
    assert asked.notified(asked.poll(after_ms=999)) == []
    assert asked.notified(asked.poll(after_ms=1)) == ["u#1"]
    assert asked.report_units().unavailable == {}


def test_a_thousand_units_wait_for_a_server_and_others_go_on(asked: Asked) -> None:
    made = [asked.envelope(f"u-{number}", 1) for number in range(1_000)]
    for each in made:
        asked.handler.fail(each, *[GONE] * 100)
    asked.poll(*made)
    asked.handler.seen.clear()
    for second in range(60):
        assert asked.notified(asked.poll(asked.envelope(f"v-{second}", 1), after_ms=1_000)) == [f"v-{second}#1"]
    assert len([each for each, *_ in asked.handler.seen if each.unit.startswith("u-")]) <= 7
    asked.handler.failures.clear()
    asked.now += 30_000
    notified: list[str] = []
    while asked.report_units().waiting:
        notified += asked.notified(asked.poll(after_ms=1))
    assert sorted(notified) == sorted(f"u-{number}#1" for number in range(1_000))


def next_wake(decided: Decided) -> int:
    assert decided.next_wake_at is not None
    return decided.next_wake_at


def test_the_guardian_asks_to_be_woken_for_the_next_try(asked: Asked) -> None:
    first, other = asked.envelope("u", 1), asked.envelope("v", 1)
    asked.handler.fail(first, *[GONE] * 9)
    asked.handler.fail(other, *[GONE] * 9)
    assert next_wake(asked.poll(first, other)) == asked.now + 1_000
    assert next_wake(asked.poll(after_ms=1_000)) == asked.now + 1_000, "one tried, the other waits for its turn"


def test_after_a_takeover_they_try_one_by_one(asked: Asked, new_asked: Callable[..., Asked]) -> None:
    made = [asked.envelope(f"u-{number}", 1) for number in range(8)]
    for each in made:
        asked.handler.fail(each, GONE)
    asked.poll(*made)
    successor = new_asked()
    successor.stored, successor.waiting = dict(asked.stored), dict(asked.waiting)
    successor.now = asked.now + 60_000
    successor.arm(asked.waiting)
    waves = [len(successor.notified(successor.poll())) for _ in range(4)]
    assert waves == [1, 2, 4, 1]


def test_beyond_its_bound_such_a_unit_leaves_memory_when_nothing_comes_for_it(new_asked: Callable[..., Asked]) -> None:
    asked = new_asked(unit_stash=3)
    first = asked.envelope("u", 1)
    asked.handler.fail(first, GONE)
    asked.poll(first, asked.envelope("u", 2))
    asked.poll()
    assert asked.report_units().active == 1, "within its bound it stays"
    asked.poll(asked.envelope("u", 3), asked.envelope("u", 4))
    asked.poll(asked.envelope("u", 5))
    assert asked.loaded[-1] == frozenset(), "it was spoken to: it is not loaded anew for each that comes"
    asked.poll()
    units_report = asked.report_units()
    assert (units_report.active, units_report.waiting, units_report.stashed, units_report.stashed_bytes) == (0, 1, 5, 0)
    assert asked.notified(asked.poll(asked.envelope("u", 6), after_ms=1_000)) == [f"u#{number}" for number in range(1, 7)]
    assert asked.loaded[-1] == frozenset({UnitKey(P0, "u")})


def test_where_nothing_can_be_loaded_again_it_stays(new_asked: Callable[..., Asked]) -> None:
    asked = new_asked(unit_stash=1, can_reload=False)
    first = asked.envelope("u", 1)
    asked.handler.fail(first, GONE)
    asked.poll(first, asked.envelope("u", 2))
    asked.poll()
    assert asked.report_units().active == 1


def test_it_is_said_once_when_a_server_goes_and_once_when_nothing_waits_for_it(
    asked: Asked, caplog: pytest.LogCaptureFixture
) -> None:
    first, other = asked.envelope("u", 1), asked.envelope("v", 1)
    asked.handler.fail(first, GONE, GONE)
    asked.handler.fail(other, GONE)
    with caplog.at_level(logging.INFO):
        asked.poll(first, other)
        for _ in range(5):
            asked.poll(after_ms=3_000)
    assert [each.getMessage() for each in caplog.records if API in each.getMessage()] == [
        "sanctions-api is unavailable: units that need it wait and are retried until it answers",
        "sanctions-api: no unit waits for it any more",
    ]
