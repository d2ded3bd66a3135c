"""A server that the handler calls is unavailable: the unit waits for it, and no attempt is counted."""

import msgspec
import pytest
from harness.driving import PAIN_001, drive

from resequencer.errors import DependencyUnavailable, PermanentError, TransientError
from resequencer.storage_port import WaitKind
from resequencer.unit import Wake, entry_of

GONE = DependencyUnavailable("sanctions-api")
AWAY = TransientError("the mapper is away")


@pytest.fixture(params=[False, True], ids=["one incarnation", "a new incarnation at every turn"])
def unit(request):
    driven = drive("SEQUENCE")
    driven.reincarnates = request.param
    return driven


def test_the_error_is_transient_and_names_the_server_in_few_printable_characters():
    assert isinstance(GONE, TransientError)
    assert str(GONE) == "sanctions-api unavailable"
    assert DependencyUnavailable("a\nb\x1b[31m").name == r"a\nb\x1b[31m"
    assert DependencyUnavailable("x" * 1_000).name == "x" * 63 + "…"
    assert DependencyUnavailable("").name == "unnamed"
    assert DependencyUnavailable(None).name == "None"  # A user's code may pass any value.


def test_the_unit_waits_for_it_by_name(unit, envelopes):
    first = envelopes(1)
    unit.handler.fail(first, GONE)
    waits = unit.arrive(first).waits
    assert (waits.kind, waits.waits_for, waits.since, waits.stashed) == (WaitKind.DEPENDENCY, "sanctions-api", unit.now, 1)
    assert unit.last.retries == 0


def test_pauses_double_up_to_30_seconds_and_it_is_never_given_up(unit, envelopes):
    first = envelopes(1)
    unit.handler.fail(first, *[GONE] * 40)
    unit.arrive(first)
    pauses = []
    for _ in range(40):
        pauses.append(unit.last.waits.wakes_at - unit.now)
        unit.wake(Wake.RETRY, after_ms=pauses[-1])
    assert pauses == [1_000, 2_000, 4_000, 8_000, 16_000, *[30_000] * 35]
    assert unit.sequences == [1]
    assert unit.dead == []


def test_jitter_never_makes_a_pause_longer_than_30_seconds(envelopes):
    class Upmost:
        def uniform(self, a, b):
            return b

    unit, first = drive("SEQUENCE"), envelopes(1)
    unit.chance = Upmost()
    unit.handler.fail(first, *[GONE] * 9)
    assert unit.arrive(first).waits.wakes_at == unit.now + 1_200
    for _ in range(8):
        unit.wake(Wake.RETRY, after_ms=unit.last.waits.wakes_at - unit.now)
    assert unit.last.waits.wakes_at == unit.now + 30_000


def test_attempts_that_failed_otherwise_are_counted_on_around_it(unit, envelopes):
    first = envelopes(1)
    unit.handler.fail(first, AWAY, GONE, AWAY, GONE, AWAY)
    unit.arrive(first)
    for _ in range(4):
        unit.wake(Wake.RETRY, after_ms=30_000)
    assert [each.error for each in unit.dead] == ["the mapper is away (attempt 3 of 3)"]


def test_after_another_failure_and_for_another_server_the_pauses_begin_anew(unit, envelopes):
    first = envelopes(1)
    unit.handler.fail(first, GONE, GONE, DependencyUnavailable("rates"), AWAY, GONE)
    unit.arrive(first)
    pauses = []
    for _ in range(4):
        unit.wake(Wake.RETRY, after_ms=30_000)
        pauses.append(unit.last.waits.wakes_at - unit.now)
    assert pauses == [2_000, 1_000, 3_000, 1_000]
    assert unit.last.waits.waits_for == "sanctions-api"


def test_what_comes_meanwhile_waits_behind_it_and_leaves_in_order(unit, envelopes):
    first = envelopes(1)
    unit.handler.fail(first, GONE, GONE)
    unit.arrive(first, envelopes(3), envelopes(2))
    unit.wake(Wake.DEADLINE, after_ms=60_000)
    assert unit.last.waits.kind is WaitKind.DEPENDENCY
    unit.wake(Wake.RETRY)
    unit.wake(Wake.RETRY, after_ms=30_000)
    assert unit.sequences == [1, 2, 3]
    assert [marks.incomplete for marks in unit.marks] == [None] * 5


def test_one_that_a_deadline_released_is_complete_if_the_rest_came_during_the_outage(envelopes):
    unit, bare = drive("FULL_PAIN001"), envelopes(1)
    unit.handler.fail(bare, GONE, GONE)
    unit.arrive(bare)
    unit.expire()
    unit.wake(Wake.RETRY, after_ms=3_600_000)
    unit.arrive(envelopes(2, mds=PAIN_001))
    unit.wake(Wake.RETRY, after_ms=30_000)
    assert unit.sequences == [1, 2]
    assert unit.marks[-1].incomplete is unit.marks[-2].incomplete is None


def test_its_stash_is_not_released_at_its_bound(envelopes):
    unit, first = drive("SEQUENCE", stash_limit=3), envelopes(1)
    unit.handler.fail(first, GONE)
    unit.arrive(first, *(envelopes(number) for number in range(3, 12)))
    assert len(unit.handler.seen) == 1, "the bound leads to no early attempt"
    assert unit.last.waits.stashed == 10
    assert unit.sequences == []
    unit.arrive(envelopes(2))
    unit.wake(Wake.RETRY, after_ms=1_000)
    assert unit.sequences == [*range(1, 12)]
    assert not any(marks.incomplete for marks in unit.marks)


def test_beyond_four_times_its_bound_the_one_that_waits_longest_is_set_aside(unit, envelopes):
    unit.settings = msgspec.structs.replace(unit.settings, stash_limit=2)
    made = [envelopes(number) for number in range(1, 30)]
    for each in made:
        unit.handler.fail(each, *[GONE] * 100)
    unit.arrive(*made)
    assert [each.error for each in unit.dead][:1] == [
        "sanctions-api is unavailable, and the unit's stash is more than four times its limit (stash-limit)"
    ]
    assert unit.last.waits.stashed == 8
    assert len(unit.dead) == 29 - 8
    assert unit.stored is not None
    assert len(unit.stored.stash) == 8


def test_beyond_four_times_its_bound_in_bytes_too(unit, envelopes):
    made = [envelopes(number) for number in range(1, 30)]
    unit.settings = msgspec.structs.replace(unit.settings, stash_bytes=2 * entry_of(made[-1], "", 0, 0).size)
    for each in made:
        unit.handler.fail(each, *[GONE] * 100)
    unit.arrive(*made)
    assert len(unit.dead) == 29 - 8


def test_at_the_bound_of_a_worker_that_cannot_put_it_elsewhere_it_is_set_aside(unit, envelopes):
    first, second = envelopes(1), envelopes(2)
    for each in (first, second):
        unit.handler.fail(each, *[GONE] * 9)
    unit.arrive(first, second, envelopes(5))
    assert unit.wake(Wake.BOUND).waits.stashed == 2
    assert [each.error for each in unit.dead] == [
        "sanctions-api is unavailable, and the worker's stash is full (stash-limit.bytes-per-worker)"
    ]
    unit.wake(Wake.BOUND)
    assert len(unit.dead) == 2
    assert unit.sequences == [5]


def test_one_that_fails_for_good_after_the_outage_is_set_aside(unit, envelopes):
    first = envelopes(1)
    unit.handler.fail(first, GONE, PermanentError("never"))
    unit.arrive(first, envelopes(2))
    unit.wake(Wake.RETRY, after_ms=1_000)
    assert [each.error for each in unit.dead] == ["never"]
    assert unit.sequences == [2]
