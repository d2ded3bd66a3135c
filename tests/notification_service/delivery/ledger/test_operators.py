"""Decisions of operators in the ledger while rows are on their way: holds, cancelling, repair, and other steps."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec
import pytest
from harness.ledger_stage import RETENTION_MS, LedgerStage, item
from harness.receivers import receiver
from sqlalchemy import Connection, text

from notification_service.delivery.core.answers import Done, Failed
from notification_service.delivery.core.jobs import JobState
from notification_service.delivery.errors import JobRefused, LedgerUnavailable
from notification_service.delivery.ledger.finishing import ClaimResult
from notification_service.delivery.ledger.intake import Portion
from notification_service.delivery.ledger.ledger import Ledger
from notification_service.delivery.settings import Step

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
    it.ledger.go_on("r")
    assert (it.job().completed_at, it.claim()) == (None, [])
    it.now += 60_000
    assert it.deliver_all() == ["a-2"]
    assert it.job().completed_at == it.now


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


def test_a_unit_is_announced_when_its_receiver_needs_that_by_now(stage: Make) -> None:
    it = stage()
    it.take(item("a", 1), item("a", 2), item("b", 3))
    while it.ledger.fit_steps("r"):
        pass
    (called,) = it.claim(wanted=1)
    changed = it.another(receiver("steps = announce-deliver"))
    while changed.fit_steps("r"):
        pass
    changed.finish("r", [ClaimResult(called, Done())])
    assert changed.claim("r", Step.DELIVER, "w", 5).claims == []
    announcements = changed.claim("r", Step.ANNOUNCE, "w", 5).claims
    assert sorted(each.notification_id for each in announcements) == ["a-2", "b-3"]
    changed.finish("r", [ClaimResult(each, Done()) for each in announcements])
    while changed.fit_steps("r"):
        pass
    assert len(changed.claim("r", Step.DELIVER, "w", 5).claims) == 2


def test_a_job_that_is_repaired_in_portions_ends_once(stage: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    it = stage()
    it.take(item("a", 1), item("b", 2), item("c", 3))
    it.finish(it.claim(), Failed("HTTP 400"))
    monkeypatch.setattr("notification_service.delivery.ledger.job_orders._CHUNK", 1)
    other = it.another()
    original = other.database.write

    def between() -> Any:
        # Before each transaction but the first a worker delivers what is open again.
        it.deliver_all()
        return original()

    monkeypatch.setattr(other.database, "write", between)
    assert other.retry_failed("j", with_late=False) == (3, 0)
    assert it.job().state is JobState.COMPLETE
    assert len(it.ledger.events.after(0, 10)) == 2


def test_a_job_of_a_receiver_that_is_not_configured_any_more_is_told_and_not_half_cancelled(stage: Make) -> None:
    it = stage()
    it.take(item("a", 1))
    without = Ledger(it.ledger.database, [], RETENTION_MS, 60_000)
    for refused in (lambda: without.cancel_job("j"), lambda: without.retry_failed("j", with_late=False)):
        with pytest.raises(JobRefused, match="the receiver r of j is not configured with policy = ledger"):
            refused()
    assert it.job().state is JobState.ACTIVE


def test_nothing_of_a_cancelled_job_is_claimed_although_its_canceller_died(stage: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    it = stage()
    it.take(*(item(f"k{number % 3}", number) for number in range(12)))
    it.take(item("k1", 99), item("z", 100), job="other")
    monkeypatch.setattr("notification_service.delivery.ledger.job_orders._CHUNK", 2)
    monkeypatch.setattr("notification_service.delivery.ledger.job_orders.cancel_rows", lambda *_: None)
    it.ledger.cancel_job("j")
    claimed = [claim.notification_id for _ in range(20) for claim in it.claim(wanted=2)]
    assert sorted(claimed) == ["k1-99", "z-100"]
    assert (it.job().open, it.job().cancelled) == (0, 12), "those that were met have ended"
    monkeypatch.undo()
    it.ledger.go_on("r")
    assert it.job().completed_at == it.now


def struck(ledger: Ledger, transaction: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the ledger be away from this transaction on, as if its process had died before it."""
    original, count = ledger.database.write, iter(range(1_000))

    def write() -> Any:
        if next(count) >= transaction:
            raise LedgerUnavailable("", "it is away")
        return original()

    monkeypatch.setattr(ledger.database, "write", write)


@pytest.mark.parametrize("transaction", range(5))
def test_a_repair_that_was_interrupted_is_ended_by_the_workers_with_one_event(
    stage: Make, transaction: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    it = stage()
    it.take(item("a", 1), item("b", 2), item("c", 3))
    it.finish(it.claim(), Failed("HTTP 400"))
    monkeypatch.setattr("notification_service.delivery.ledger.job_orders._CHUNK", 1)
    dying = it.another()
    struck(dying, transaction, monkeypatch)
    with pytest.raises(LedgerUnavailable):
        dying.retry_failed("j", with_late=False)
    it.deliver_all()
    assert (it.job().open, len(it.ledger.events.after(0, 10))) == (0, 1), "it does not end in the midst of its repair"
    it.ledger.go_on("r")
    it.deliver_all()
    was_ordered = transaction > 0
    assert (it.job().processed, it.job().state) == (3 if was_ordered else 0, JobState.COMPLETE)
    assert len(it.ledger.events.after(0, 10)) == 1 + was_ordered
    assert it.ledger.retry_failed("j", with_late=False) == (0 if was_ordered else 3, 0)


def test_a_job_in_the_midst_of_its_repair_can_be_cancelled(stage: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    it = stage()
    it.take(item("a", 1), item("b", 2))
    it.finish(it.claim(), Failed("HTTP 400"))
    monkeypatch.setattr("notification_service.delivery.ledger.job_orders._CHUNK", 1)
    dying = it.another()
    struck(dying, 2, monkeypatch)
    with pytest.raises(LedgerUnavailable):
        dying.retry_failed("j", with_late=False)
    it.ledger.cancel_job("j")
    it.ledger.go_on("r")
    assert (it.claim(), it.job().state, it.job().cancelled, it.job().failed) == ([], JobState.CANCELLED, 1, 1)


def test_jobs_that_ended_with_the_five_rows_that_shut_the_gate_go_on_and_end_once_more(stage: Make) -> None:
    it = stage("suspension { probe = 1s, most = 1s }")
    for number in range(5):
        it.take(item(f"k{number}", number), job=f"j{number}")
    claims = it.claim()
    for each in claims[:4]:
        it.finish([each], Failed("HTTP 418"))
    assert [it.job(f"j{number}").state for number in range(5)] == [*[JobState.COMPLETE] * 4, JobState.ACTIVE]
    it.finish(claims[4:], Failed("HTTP 418"))
    assert {(it.job(f"j{number}").failed, it.job(f"j{number}").open) for number in range(5)} == {(0, 1)}
    it.now += 1_000
    it.deliver_all()
    it.now += 1_000
    it.deliver_all()
    assert {it.job(f"j{number}").state for number in range(5)} == {JobState.COMPLETE}
    events = [each for _, each in it.ledger.events.after(0, 20)]
    assert sorted((each.job, each.run, each.failed) for each in events) == sorted(
        [*((f"j{number}", 1, 1) for number in range(4)), *((f"j{number}", 2, 0) for number in range(4)), ("j4", 1, 0)]
    )


def test_a_hold_is_shown_with_each_job_that_waits_for_it(stage: Make) -> None:
    it = stage("on-failed = hold")
    it.take(item("a", 1))
    it.take(item("a", 2), item("b", 3), job="k")
    it.finish(it.claim(), Failed("HTTP 400"))
    assert (it.job().state, it.job().held_units) == (JobState.COMPLETE, 1)
    assert (it.job("k").state, it.job("k").held_units) == (JobState.HELD, 2)
    it.ledger.release_unit("r", "a")
    assert (it.job().held_units, it.job("k").held_units) == (0, 1)


def test_a_live_job_whose_source_is_not_read_is_stalled(stage: Make) -> None:
    it = stage()
    it.ledger.ensure_live("r", "live")
    it.ledger.schedule_job("s", "r")
    for _ in range(3):
        it.now += 50_000
        intake = it.ledger.open_intake("live-r", "w")
        assert intake is not None
        it.ledger.take_in(intake, "r", Portion([], {}, is_end=True))
    assert it.job("live-r").state is JobState.ACTIVE
    it.now += 60_001
    assert it.job("live-r").state is JobState.STALLED
    assert it.job("schedule-s").state is JobState.ACTIVE
    # A receiver that is not live any more is not read for; what it had taken is delivered.
    before = it.another(receiver("live = false")).find_job("live-r")
    assert before is not None
    assert before.state is JobState.ACTIVE


def test_a_key_that_retention_deletes_between_two_statements_of_an_intake_is_made_again(
    stage: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    it = stage()
    original, struck = Connection.execute, []

    def execute(self: Connection, statement: Any, *others: Any, **more: Any) -> Any:
        found = original(self, statement, *others, **more)
        if str(statement).startswith("INSERT INTO delivery_key") and not struck:
            struck.append(original(self, text("delete from delivery_key where key = 'a'")))
        return found

    monkeypatch.setattr(Connection, "execute", execute)
    assert it.take(item("a", 1), item("b", 2)) == 2
    assert struck
    assert it.deliver_all() == ["a-1", "b-2"]


@pytest.mark.slow
def test_retention_and_intake_of_the_same_units_at_once_lose_nothing_and_end_no_process(stage: Make) -> None:
    it = stage()
    others = [it.another() for _ in range(3)]

    def forget(ledger: Ledger) -> None:
        for _ in range(60):
            ledger.delete_expired()

    with ThreadPoolExecutor(3) as threads:
        running = [threads.submit(forget, each) for each in others]
        for number in range(12):
            it.take(*(item(f"k{each}", 100 * number + each) for each in range(20)), job=f"j{number}")
            it.deliver_all()
            it.now += RETENTION_MS + 1
    for each in running:
        each.result()
    assert all(it.job(each.id).processed == each.ingested == 20 for each in it.ledger.jobs())
