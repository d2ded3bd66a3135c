"""Decisions of operators in the ledger while rows are on their way: holds, cancelling, repair, and other steps."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from harness.ledger_stage import RETENTION_MS, LedgerStage, item
from harness.receivers import receiver

from delivery.answers import Done, Failed
from delivery.errors import JobRefused
from delivery.jobs import JobState
from delivery.ledger.finishing import ClaimResult
from delivery.ledger.ledger import Ledger
from delivery.settings import Step

Make = Callable[..., LedgerStage]


def test_a_unit_that_a_failed_row_holds_stays_held_beyond_the_retention(stage: Make) -> None:
    it = stage("on-failed = hold")
    it.take(item("a", 1), item("a", 2), item("b", 3))
    it.finish(it.claim(), Failed("HTTP 400"))
    it.now += 10 * RETENTION_MS
    while it.ledger.delete_expired():
        pass
    assert [unit for unit, _ in it.ledger.held("r", 10)] == ["a", "b"]
    it.take(item("b", 4), job="k")
    assert it.claim() == [], "nothing follows before an operator decides"
    assert it.ledger.retry_failed("j", with_late=False) == (2, 0)
    assert it.deliver_all() == ["a-1", "b-3", "a-2", "b-4"]


def test_a_row_that_is_being_called_is_not_overtaken_when_its_job_is_cancelled(stage: Make) -> None:
    it = stage()
    it.take(item("a", 1), item("a", 2))
    it.take(item("a", 3), job="k")
    claims = it.claim()
    it.ledger.cancel_job("j")
    assert it.claim() == []
    assert (it.job().state, it.job().cancelled, it.job().open) == (JobState.CANCELLED, 1, 1)
    assert it.finish(claims).refused == 1
    assert (it.job().cancelled, it.job().open, it.job().completed_at) == (2, 0, it.now)
    assert it.deliver_all() == ["a-3"]


def test_a_row_of_a_cancelled_job_whose_caller_died_ends_with_its_lease(stage: Make) -> None:
    it = stage()
    it.take(item("a", 1))
    it.take(item("a", 2), job="k")
    it.claim()
    it.ledger.cancel_job("j")
    it.ledger.go_on_cancelling("r")
    assert it.job().completed_at is None
    it.now += 60_000
    assert it.claim() == []
    it.ledger.go_on_cancelling("r")
    assert it.job().completed_at == it.now
    assert it.deliver_all() == ["a-2"]


def test_what_could_never_be_called_is_not_delivered_again_to_another_unit(stage: Make) -> None:
    it = stage()
    strange = msgspec.structs.replace(item("a", 1), defect="the key of the record has a character of no unit")
    it.take(item("a", 0), strange, item("a", 2))
    assert it.deliver_all() == ["a-0", "a-2"]
    assert it.ledger.retry_failed("j", with_late=True) == (0, 0)
    assert (it.claim(), it.job().failed, it.job().state) == ([], 1, JobState.COMPLETE)


@pytest.mark.parametrize(
    ("before", "after"), [("announce-verify-deliver", "deliver"), ("announce-verify-deliver", "announce-deliver")]
)
@pytest.mark.parametrize("step", [Step.ANNOUNCE, Step.VERIFY])
def test_a_unit_goes_on_when_its_receiver_needs_fewer_steps(stage: Make, before: str, after: str, step: Step) -> None:
    it = stage(f"steps = {before}", "verify.delay = 0s")
    it.take(item("a", 1), item("a", 2))
    if step is Step.VERIFY:
        it.finish(it.claim(step=Step.ANNOUNCE))
    changed = it.another(receiver(f"steps = {after}"))
    while changed.fit_steps("r"):
        pass
    called: list[str] = []
    for each in (Step.ANNOUNCE, Step.DELIVER, Step.DELIVER):
        claims = changed.claim("r", each, "w", 5).claims
        called += [claim.notification_id for claim in claims if claim.step is Step.DELIVER]
        changed.finish("r", [ClaimResult(claim, Done()) for claim in claims])
    assert called == ["a-1", "a-2"]


def test_a_job_that_is_repaired_in_portions_ends_once(stage: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    it = stage()
    it.take(item("a", 1), item("b", 2), item("c", 3))
    it.finish(it.claim(), Failed("HTTP 400"))
    monkeypatch.setattr("delivery.ledger.jobs._CHUNK", 1)
    other = it.another()
    original = other.database.write

    def between() -> Any:
        # Before each transaction but the first a worker delivers what is open again.
        it.deliver_all()
        return original()

    monkeypatch.setattr(other.database, "write", between)
    assert other.retry_failed("j", with_late=False) == (3, 0)
    assert it.job().state is JobState.COMPLETE
    assert len(it.ledger.events_after(0, 10)) == 2


def test_a_job_of_a_receiver_that_is_not_configured_any_more_is_told_and_not_half_cancelled(stage: Make) -> None:
    it = stage()
    it.take(item("a", 1))
    without = Ledger(it.ledger.database, [], RETENTION_MS, 60_000)
    for refused in (lambda: without.cancel_job("j"), lambda: without.retry_failed("j", with_late=False)):
        with pytest.raises(JobRefused, match="the receiver r of j is not configured with policy = ledger"):
            refused()
    assert it.job().state is JobState.ACTIVE
