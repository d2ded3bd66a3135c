"""The ledger while the clock is wrong for one look: nothing rests for a year, nothing is called twice, nothing is forgotten."""

import pytest
from harness.ledger_stage import RETENTION_MS, item

from notification_service.delivery.core.answers import Failed, Limited, Suspended
from notification_service.delivery.core.jobs import Item
from notification_service.delivery.ledger.finishing import ClaimResult
from notification_service.delivery.ledger.intake import Portion
from resequencer.clock import TRUSTED_MS
from tests.notification_service.delivery.ledger.test_rows import Make

DAY = 86_400_000
YEAR = 365 * DAY
AHEAD_AND_BACK = pytest.mark.parametrize("ahead", [YEAR, -YEAR])


@AHEAD_AND_BACK
def test_rows_that_were_taken_in_then_are_delivered(stage: Make, ahead: int) -> None:
    it = stage()
    it.ahead = ahead
    it.take(item("a", 1), item("a", 2))
    it.ahead = 0
    it.ledger.end_long_pauses("r")
    assert it.deliver_all() == ["a-1", "a-2"]


@AHEAD_AND_BACK
def test_a_claim_of_then_is_not_called_twice_and_lasts_as_long_as_any(stage: Make, ahead: int) -> None:
    it = stage("timeout = 10s")
    it.ahead = ahead
    it.take(item("a", 1))
    (held,) = it.claim("w1")
    it.ahead = 0
    assert it.claim("w2") == []
    it.now += 29_999
    assert it.claim("w2") == []
    it.now += 1
    (again,) = it.claim("w2")
    assert again.row == held.row
    assert it.finish([held]).refused == 1


@AHEAD_AND_BACK
def test_the_right_to_read_a_source_lasts_as_long_as_any(stage: Make, ahead: int) -> None:
    it = stage()
    it.ledger.start_job("j", "r", "s", "ann")
    it.ahead = ahead
    assert it.ledger.open_intake("j", "w1") is not None
    it.ahead = 0
    other = it.another()
    assert other.open_intake("j", "w2") is None
    it.now += 30_000
    assert other.open_intake("j", "w2") is not None


def test_a_gate_and_what_rests_behind_it_go_on_after_their_pause(stage: Make) -> None:
    it = stage("suspension { probe = 10s, most = 60s }")
    it.take(item("a", 1))
    claims = it.claim()
    it.ahead = YEAR
    it.finish(claims, Suspended("HTTP 401"))
    it.ahead = 0
    it.ledger.end_long_pauses("r")
    it.now += 60_000
    it.ledger.end_long_pauses("r")
    assert it.deliver_all() == ["a-1"]


def test_however_many_rows_rest_they_go_on_together(stage: Make) -> None:
    """Also those whose pauses end at many instants: all have been noticed at the first look."""
    it = stage("retry.first = 10s", "concurrency = 1000")
    it.ahead = YEAR
    it.take(*(item(f"a{number}", 1) for number in range(1_500)))
    limited = it.claim(wanted=1_000)
    it.ledger.finish("r", [ClaimResult(each, Limited("HTTP 429", number)) for number, each in enumerate(limited)])
    it.ahead = 0
    assert it.ledger.end_long_pauses("r") == 1_500 - len(limited)
    it.now += DAY
    assert it.ledger.end_long_pauses("r") == len(limited)


def test_a_clock_that_is_behind_shortens_no_pause(stage: Make) -> None:
    it = stage("suspension { probe = 10s, most = 60s }")
    it.take(item("a", 1))
    it.finish(it.claim(), Suspended("HTTP 401"))
    it.ahead = -YEAR
    it.ledger.end_long_pauses("r")
    it.now += 5_000
    it.ledger.end_long_pauses("r")
    it.ahead = 0
    assert it.claim() == []
    it.now += 5_000
    assert it.deliver_all() == ["a-1"]


def test_nothing_is_deleted_by_a_clock_that_is_ahead_for_one_look(stage: Make) -> None:
    it = stage()
    it.trusted_ms = TRUSTED_MS
    ledger = it.another()
    it.take(item("a", 1), item("b", 1))
    first, second = it.claim()
    it.finish([first], Failed("HTTP 418"))
    it.finish([second])
    assert ledger.delete_expired() == 0
    it.ahead = YEAR
    assert ledger.delete_expired() == 0
    it.ahead = 0
    it.now += TRUSTED_MS - 1
    assert ledger.delete_expired() == 0
    assert ledger.retry_failed("j", with_late=False) == (1, 0)
    assert it.deliver_all() == ["a-1"]
    it.now += TRUSTED_MS + RETENTION_MS
    assert ledger.delete_expired() == 2


def test_what_ended_in_the_future_ends_when_the_clock_is_trusted(stage: Make) -> None:
    it = stage()
    it.take(item("a", 1))
    claims = it.claim()
    it.ahead = YEAR
    it.finish(claims)
    it.ahead = 0
    assert it.ledger.delete_expired() == 1, "it is dated back"
    it.now += RETENTION_MS
    assert (it.ledger.delete_expired(), it.job() is None) == (0, False)
    it.now += 1
    assert it.ledger.delete_expired() == 1


def test_what_ended_while_the_clock_was_behind_is_kept_for_the_retention_after_it_is_set_right(stage: Make) -> None:
    """Rows, the memory of duplicates, and positions in files that were gone by then; also of a ledger that was new then."""
    it = stage()
    job = it.ledger.ensure_live("r", "live")

    def take(*items: Item, gone: frozenset[str] = frozenset()) -> int:
        intake = it.ledger.open_intake(job, "w1")
        assert intake is not None
        return it.ledger.take_in(intake, "r", Portion(items, {"p": 1, "old": 1}, is_end=True, gone=gone))

    it.ahead = -YEAR
    it.ledger.delete_expired()
    take(item("a", 1))
    it.deliver_all()
    take(gone=frozenset(["old"]))
    it.ahead = 0
    take(gone=frozenset(["old"]))
    assert it.another().delete_expired() == 0
    it.now += RETENTION_MS - 1
    intake = it.ledger.open_intake(job, "w1")
    assert (it.ledger.delete_expired(), take(item("a", 1))) == (0, 0)
    assert intake is not None
    assert "old" in intake.positions
    it.now += 1
    assert it.ledger.delete_expired() == 1


def test_a_file_that_went_in_the_future_is_forgotten_a_retention_after_it_is_noticed(stage: Make) -> None:
    it = stage()
    job = it.ledger.ensure_live("r", "live")

    def look(gone: set[str]) -> dict[str, int]:
        intake = it.ledger.open_intake(job, "w1")
        assert intake is not None
        it.ledger.take_in(intake, "r", Portion([], {} if gone else {"p": 7}, is_end=True, gone=frozenset(gone)))
        return dict(intake.positions)

    look(set())
    it.ahead = YEAR
    look({"p"})
    it.ahead = 0
    it.ledger.delete_expired()
    it.now += RETENTION_MS + 1
    assert look({"p"}) == {"p": 7}
    it.ledger.delete_expired()
    assert look({"p"}) == {}


def test_a_clock_that_was_ahead_when_it_was_noted_does_not_end_the_retention(stage: Make) -> None:
    it = stage()
    it.take(item("a", 1))
    it.deliver_all()
    it.ledger.delete_expired()
    it.ahead = YEAR
    it.ledger.delete_expired()
    it.ahead = 0
    assert it.ledger.delete_expired() == 0
    it.now += RETENTION_MS
    assert it.ledger.delete_expired() == 0
    it.now += 1
    assert it.ledger.delete_expired() == 1
