"""Jobs: when they are complete, their one event, cancelling, and delivering failed rows again."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from harness.ledger_stage import RETENTION_MS, LedgerStage, item
from sqlalchemy import text

from notification_service.delivery.core.answers import Done, Failed, Limited, Suspended
from notification_service.delivery.core.backlog import Backlog
from notification_service.delivery.core.jobs import JobEvent, JobState
from notification_service.delivery.errors import IntakeLost, JobRefused
from notification_service.delivery.event_file import EventFile
from notification_service.delivery.ledger.finishing import ClaimResult
from notification_service.delivery.ledger.intake import Portion
from notification_service.delivery.settings import Step
from resequencer.clock import instant_text

Make = Callable[..., LedgerStage]


def events(it: LedgerStage) -> list[JobEvent]:
    return [each for _, each in it.ledger.events.after(0, 100)]


def test_a_job_without_rows_is_complete_when_its_source_was_read_and_not_before(stage: Make) -> None:
    it = stage()
    it.take(seals=False)
    assert (it.job().state, it.job().expected, events(it)) == (JobState.ACTIVE, None, [])
    it.take()
    assert (it.job().state, it.job().expected) == (JobState.COMPLETE, 0)
    (event,) = events(it)
    assert (event.number, event.job, event.state, event.expected) == (1, "j", JobState.COMPLETE, 0)


def test_an_empty_list_of_items_is_processed_once(stage: Make) -> None:
    it = stage()
    it.ledger.start_job("j", "r", "s", "ann")
    intake = it.ledger.open_intake("j", "w1")
    assert intake is not None
    nothing_selected = Portion((), {"p": 3}, not_selected=3, is_end=True, seals=True)
    assert it.ledger.take_in(intake, "r", nothing_selected) == 0
    assert (it.job().state, it.job().read, it.job().not_selected, it.job().ingested) == (JobState.COMPLETE, 3, 3, 0)
    with pytest.raises(IntakeLost):
        it.ledger.take_in(intake, "r", nothing_selected)
    assert it.ledger.open_intake("j", "w2") is None
    assert (it.claim(), len(events(it)), it.job().read) == ([], 1, 3)


def test_a_job_whose_rows_have_all_ended_is_not_complete_while_it_takes_in(stage: Make) -> None:
    it = stage()
    it.take(item("a", 1), seals=False)
    it.deliver_all()
    assert (it.job().state, events(it)) == (JobState.ACTIVE, [])
    it.take(item("b", 2))
    assert events(it) == []
    it.deliver_all()
    assert [(each.processed, each.expected) for each in events(it)] == [(2, 2)]


def test_counts_add_up_at_every_step(stage: Make) -> None:
    it = stage()
    it.take(*(item(f"k{number % 7}", number) for number in range(50)))
    while claims := it.claim(wanted=5):
        it.finish(claims[:1], Failed("HTTP 400"))
        it.finish(claims[1:])
        job = it.job()
        assert job.processed + job.failed + job.rejected + job.cancelled + job.open == job.ingested == job.expected == 50
    (event,) = events(it)
    assert (event.processed + event.failed, event.expected) == (50, 50)


def test_two_that_end_the_last_rows_at_once_make_one_event(stage: Make) -> None:
    it = stage("concurrency = 100")
    it.take(*(item(f"k{number}", number) for number in range(40)))
    claims = it.claim()
    others = [it.another() for _ in range(4)]

    def end(number: int) -> None:
        for each in claims[number::4]:
            others[number].finish("r", [ClaimResult(each, Done())])

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(end, range(4)))
    for each in others:
        each.close()
    assert (it.job().state, len(events(it))) == (JobState.COMPLETE, 1)


def test_events_are_numbered_without_a_gap(stage: Make) -> None:
    it = stage()
    for number in range(5):
        it.take(item("a", number), job=f"j{number}")
        it.deliver_all()
    assert [(each.number, each.job) for each in events(it)] == [(number + 1, f"j{number}") for number in range(5)]
    assert len(it.ledger.events.after(3, 1)) == 1
    assert {each.ledger for each in events(it)} == {it.ledger.events.ledger}


def test_a_cancelled_job_claims_nothing_more_and_refuses_results_under_way(stage: Make) -> None:
    it = stage()
    it.take(*(item(f"k{number % 3}", number) for number in range(9)))
    it.take(item("k0", 100), job="other")
    running = it.claim(wanted=2)
    it.ledger.cancel_job("j")
    assert it.finish(running).refused == 2
    assert (it.job().state, it.job().cancelled, it.job().open) == (JobState.CANCELLED, 9, 0)
    assert it.deliver_all() == ["k0-100"]
    assert [(each.job, each.state) for each in events(it)] == [("j", JobState.CANCELLED), ("other", JobState.COMPLETE)]
    with pytest.raises(JobRefused, match="has ended"):
        it.ledger.cancel_job("j")


def test_a_cancelled_job_takes_nothing_more_in(stage: Make) -> None:
    it = stage()
    it.ledger.start_job("j", "r", "s", "ann")
    intake = it.ledger.open_intake("j", "w1")
    assert intake is not None
    it.ledger.cancel_job("j")
    with pytest.raises(IntakeLost):
        it.ledger.take_in(intake, "r", Portion([item("a", 1)], {}))
    assert it.ledger.open_jobs("r") == []


def test_a_reader_that_stood_still_until_its_job_was_deleted_has_lost_it(stage: Make) -> None:
    it = stage()
    it.ledger.start_job("j", "r", "s", "ann")
    intake = it.ledger.open_intake("j", "w1")
    assert intake is not None
    it.ledger.cancel_job("j")
    it.now += RETENTION_MS + 1
    it.ledger.delete_expired()
    assert it.ledger.jobs() == []
    with pytest.raises(IntakeLost):
        it.ledger.take_in(intake, "r", Portion([item("a", 1)], {"p": 1}))


def test_failed_rows_are_delivered_again_in_their_order_and_the_job_ends_once_more(stage: Make) -> None:
    it = stage()
    it.take(item("a", 1), item("b", 2), item("b", 3))
    claims = it.claim()
    it.finish(claims, Failed("HTTP 400"))
    it.deliver_all()
    assert [each.failed for each in events(it)] == [2]
    assert it.ledger.retry_failed("j", with_late=False) == (1, 1)
    assert (it.job().state, it.job().failed) == (JobState.ACTIVE, 1)
    assert it.deliver_all() == ["a-1"]
    assert [(each.run, each.failed) for each in events(it)] == [(1, 2), (2, 1)]
    assert it.ledger.retry_failed("j", with_late=True) == (1, 0)
    assert it.deliver_all() == ["b-2"]
    assert (it.job().late, it.job().failed, [each.run for each in events(it)]) == (1, 0, [1, 2, 3])


def test_failed_rows_of_a_cancelled_job_stay_failed(stage: Make) -> None:
    it = stage()
    it.take(item("a", 1), item("a", 2))
    it.finish(it.claim(), Failed("HTTP 400"))
    it.ledger.cancel_job("j")
    with pytest.raises(JobRefused, match="was cancelled"):
        it.ledger.retry_failed("j", with_late=False)
    assert (it.claim(), it.job().failed, it.job().cancelled, len(events(it))) == ([], 1, 1, 1)


def test_a_job_that_takes_nothing_more_although_its_source_has_more_is_stalled(stage: Make) -> None:
    it = stage()
    it.take(item("a", 1), seals=False)
    it.now += 60_000
    assert it.job().state is JobState.ACTIVE
    it.now += 1
    assert it.job().state is JobState.STALLED


def test_the_report_of_a_receiver_tells_what_has_failed_was_retried_is_held_and_is_not_read(stage: Make) -> None:
    it = stage("on-failed = hold")
    it.take(item("a", 1), item("b", 2), item("c", 3))
    first, second, _ = it.claim()
    it.finish([first], Failed("HTTP 400"))
    it.finish([second], Limited("HTTP 429", 5))
    it.ledger.start_job("k", "r", "s", "ann")
    (gate,) = it.ledger.gates()
    assert (gate.failed, gate.held_units, gate.waiting, gate.retries.limit) == (1, 1, 2, 1)
    assert (gate.stalled_jobs, gate.unread_ms) == (0, None)
    it.ledger.ensure_live("r", "live")
    it.now += 60_001
    (gate,) = it.ledger.gates()
    assert (gate.stalled_jobs, gate.unread_ms) == (2, 60_001)


def test_a_backlog_has_its_oldest_row_its_rate_and_when_it_is_delivered(stage: Make) -> None:
    it = stage()
    it.take(item("a", 1), seals=False)
    first_at = it.now
    it.now += 5_000
    it.take(*(item("b", number) for number in range(12)), position=9)
    (gate,) = it.ledger.gates()
    assert gate.backlog == Backlog(13, instant_text(first_at))
    it.finish([each for each in it.claim() if each.key == "a"])
    it.now += 10_000
    (gate,) = it.ledger.gates()
    assert gate.backlog == Backlog(12, instant_text(first_at + 5_000), -0.1, 120_000)
    (unseen,) = it.another().gates()
    assert unseen.backlog == Backlog(12, instant_text(first_at + 5_000))


def test_the_same_job_is_started_once_and_its_name_serves_nothing_else(stage: Make) -> None:
    it = stage()
    assert it.ledger.start_job("j", "r", "s", "ann")
    assert not it.ledger.start_job("j", "r", "s", "bob")
    with pytest.raises(JobRefused, match="choose another name"):
        it.ledger.start_job("j", "r", "other", "ann")
    with pytest.raises(JobRefused, match="there is no job"):
        it.ledger.cancel_job("unknown")


def test_an_operator_opens_a_gate_and_the_rows_that_rested_go_on(stage: Make) -> None:
    it = stage("suspension { probe = 1h, most = 2h }")
    it.take(*(item(f"k{number}", number) for number in range(3)))
    it.finish(it.claim(), Suspended("HTTP 401"))
    assert it.claim() == []
    it.ledger.open_gate("r")
    assert len(it.claim()) == 3
    with pytest.raises(JobRefused, match="is open"):
        it.ledger.open_gate("r")


def test_the_ledger_forgets_nothing_when_it_is_closed(stage: Make) -> None:
    it = stage("steps = announce-deliver")
    it.take(item("a", 1), item("a", 2))
    it.finish(it.claim(step=Step.ANNOUNCE))
    it.ledger.close()
    it.ledger = it.another()
    assert it.deliver_all() == ["a-1", "a-2"]


def test_what_a_job_expects_is_fixed_when_its_source_was_read_and_is_what_completes_it(stage: Make) -> None:
    it = stage()
    it.ledger.start_job("j", "r", "s", "ann")
    intake = it.ledger.open_intake("j", "w1")
    assert intake is not None
    read = Portion([item("a", 1), item("a", 1), item("b", 2)], {"p": 5}, not_selected=2, is_end=True, seals=True)
    it.ledger.take_in(intake, "r", read)
    assert (it.job().read, it.job().duplicates, it.job().not_selected, it.job().expected) == (5, 1, 2, 2)
    with it.ledger.database.write() as connection:
        connection.execute(text("update delivery_job set expected = 3"))
    it.deliver_all()
    assert (it.job().open, it.job().state, events(it)) == (0, JobState.ACTIVE, []), "a row is missing"


def test_a_job_whose_source_holds_nothing_for_it_is_not_stalled_while_it_is_read(stage: Make) -> None:
    it = stage()
    it.ledger.start_job("j", "r", "s", "ann")
    for position in range(3):
        it.now += 50_000
        intake = it.ledger.open_intake("j", "w1")
        assert intake is not None
        it.ledger.take_in(intake, "r", Portion([], {"p": position}))
    assert it.job().state is JobState.ACTIVE


@pytest.mark.parametrize("name", ["j" * 101, "a\x00b"])
def test_a_name_that_no_database_takes_is_refused_and_found_nowhere(stage: Make, name: str) -> None:
    it = stage()
    with pytest.raises(JobRefused, match="at most 100 characters"):
        it.ledger.start_job(name, "r", "s", "ann")
    assert it.ledger.find_job(name) is None
    for ask in (it.ledger.cancel_job, lambda job: it.ledger.errors(job, 9)):
        with pytest.raises(JobRefused, match="there is no job"):
            ask(name)
    with pytest.raises(JobRefused, match="is not held"):
        it.ledger.release_unit("r", name)


@pytest.mark.parametrize("line", [b'{"number": 99999999999999999999}', b"[" * 100_000, b'{"number": -1}'])
def test_a_line_of_a_number_that_no_ledger_has_is_no_event(stage: Make, tmp_path: Path, line: bytes) -> None:
    it = stage()
    it.take(item("a", 1))
    it.deliver_all()
    file = tmp_path / "job-events.jsonl"
    file.write_bytes(line + b"\n")
    assert EventFile(file, it.ledger.events).publish() == 1
    assert file.read_bytes().splitlines()[0] == line
