"""How long a call has been running, measured by looks that may come late."""

import pytest

from notification_service.supervision.exit_rules import CallWatch

LIMIT = 10_000


def looked(watch, call, *instants):
    for now in instants:
        watch.look(call, now)
    return watch.elapsed_ms


@pytest.fixture
def watch():
    return CallWatch(LIMIT)


def test_a_call_is_over_the_limit_when_it_was_seen_for_longer(watch):
    assert looked(watch, 1, *range(0, LIMIT + 1, 500)) == LIMIT
    assert not watch.is_over
    watch.look(1, LIMIT + 500)
    assert watch.is_over


def test_another_call_begins_anew(watch):
    looked(watch, 1, 0, 1_000, 2_000)
    assert looked(watch, 2, 3_000) == 0
    assert looked(watch, 2, 4_000) == 1_000


def test_nothing_in_flight_lasts_no_time(watch):
    looked(watch, 1, 0, 1_000)
    assert looked(watch, None, 2_000, 3_000) == 0
    assert looked(watch, 1, 4_000) == 0


def test_a_watcher_that_was_away_saw_nothing_meanwhile(watch):
    """The machine was suspended, and the worker with it."""
    assert looked(watch, 1, 0, 1_000, 3_600_000) == 1_000 + 2 * watch.interval_ms
    assert not watch.is_over


def test_what_is_forgiven_begins_anew(watch):
    looked(watch, 1, 0, 1_000)
    watch.forgive()
    assert looked(watch, 1, 2_000) == 1_000


@pytest.mark.parametrize(("limit", "interval"), [(100, 20), (500, 50), (10_000, 1_000), (60_000, 1_000), (3_600_000, 1_000)])
def test_it_is_looked_often_enough_and_at_most_once_a_second_where_that_is_enough(limit, interval):
    assert CallWatch(limit).interval_ms == interval
