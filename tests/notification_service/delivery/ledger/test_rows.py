"""Rows: taken in once, claimed under a lease, ended by the one who has the claim, and in order."""

from collections.abc import Callable

import pytest
from harness.ledger_stage import LedgerStage, item

from notification_service.delivery.core.answers import (
    Again,
    Answer,
    Done,
    Failed,
    Limited,
    Outcome,
    Rejected,
    Suspended,
    outcome_of,
)
from notification_service.delivery.core.jobs import JobState, RetryMode, Tries
from notification_service.delivery.errors import IntakeLost
from notification_service.delivery.ledger.intake import Portion
from notification_service.delivery.settings import Step

Make = Callable[..., LedgerStage]
SLEEPS = Suspended("HTTP 503")


def test_rows_of_a_key_are_delivered_one_after_the_other_and_others_beside_them(stage: Make) -> None:
    it = stage()
    it.take(item("a", 1), item("a", 2), item("b", 3), item("a", 4))
    first = it.claim()
    assert [each.notification_id for each in first] == ["a-1", "b-3"]
    assert (first[0].headers, first[0].value) == ((("a", b"\xff"),), b"{}")
    assert it.claim() == []
    it.finish(first)
    assert it.deliver_all() == ["a-2", "a-4"]


def test_a_redelivered_record_makes_no_second_row(stage: Make) -> None:
    it = stage()
    assert it.take(item("a", 1), item("a", 1), item("b", 2), seals=False) == 2
    assert it.take(item("a", 1), item("b", 2), item("b", 3), seals=True) == 1
    job = it.job()
    assert (job.read, job.duplicates, job.ingested, job.expected) == (6, 3, 3, 3)
    assert sorted(it.deliver_all()) == ["a-1", "b-2", "b-3"]


def test_a_failed_insert_takes_the_position_and_the_counts_back_with_it(stage: Make) -> None:
    it = stage()
    it.ledger.start_job("j", "r", "s", "ann")
    intake = it.ledger.open_intake("j", "w1")
    assert intake is not None
    unfit = item("b", 2, status="x")
    broken = type(unfit)("b-2", "b", None, (), "p@2", "b-2")  # type: ignore[arg-type]
    with pytest.raises(Exception, match=r"(?i)null"):
        it.ledger.take_in(intake, "r", Portion([item("a", 1), broken], {"p": 2}))
    again = it.ledger.open_intake("j", "w1")
    assert again is not None
    assert (again.positions, it.job().ingested, it.claim()) == ({}, 0, [])
    assert it.ledger.take_in(again, "r", Portion([item("a", 1)], {"p": 1})) == 1


def test_of_two_readers_of_a_source_one_reads_and_a_late_one_writes_nothing(stage: Make) -> None:
    it = stage()
    it.ledger.start_job("j", "r", "s", "ann")
    first = it.ledger.open_intake("j", "w1")
    assert first is not None
    other = it.another()
    assert other.open_intake("j", "w2") is None
    it.now += 31_000
    second = other.open_intake("j", "w2")
    assert second is not None
    with pytest.raises(IntakeLost):
        it.ledger.take_in(first, "r", Portion([item("a", 1)], {"p": 1}))
    assert it.ledger.take_in(second, "r", Portion([item("a", 1)], {"p": 1})) == 1
    assert it.ledger.open_intake("j", "w1") is None


def test_a_process_that_starts_takes_nothing_from_another_and_one_that_died_lets_go_by_its_lease(stage: Make) -> None:
    it = stage("timeout = 10s")
    it.take(item("a", 1))
    (held,) = it.claim("w1")
    other = it.another()
    assert other.claim("r", Step.DELIVER, "w2", 50).claims == []
    it.now += 30_000
    (taken,) = other.claim("r", Step.DELIVER, "w2", 50).claims
    assert taken.epoch > held.epoch


def test_a_late_result_of_a_former_owner_changes_nothing_and_is_counted(stage: Make) -> None:
    it = stage()
    it.take(item("a", 1), item("a", 2))
    late = it.claim("w1")
    assert it.claim("w2") == []
    it.now += 30_000
    taken = it.claim("w2")
    assert it.finish(late).refused == 1
    assert (it.job().processed, it.job().refused_results) == (0, 1)
    assert it.finish(taken).taken == 1
    assert it.finish(taken).refused == 1
    assert (it.job().processed, it.job().refused_results) == (1, 2)


def test_a_chunk_of_which_nothing_was_called_is_not_claimed_for_ever(stage: Make) -> None:
    it = stage("concurrency = 3")
    it.take(*(item(f"k{number}", number) for number in range(10)))
    assert len(it.claim("w1")) == 3
    assert it.claim("w2") == []
    it.now += 30_000
    assert len(it.claim("w2")) == 3


def test_concurrency_counts_the_calls_of_all_workers(stage: Make) -> None:
    it = stage("concurrency = 5")
    it.take(*(item(f"k{number}", number) for number in range(20)))
    first, second = it.claim("w1", wanted=3), it.claim("w2", wanted=3)
    assert (len(first), len(second), it.claim("w3")) == (3, 2, [])
    it.finish(first)
    assert len(it.claim("w3")) == 3


def test_back_off_is_waited_for_and_nothing_of_the_key_overtakes_meanwhile(stage: Make) -> None:
    it = stage()
    it.take(item("a", 1), item("a", 2))
    it.finish(it.claim(), Again(RetryMode.BACK_OFF, 5_000, "HTTP 500"))
    it.now += 4_999
    assert it.claim() == []
    it.now += 1
    assert [each.notification_id for each in it.claim()] == ["a-1"]
    assert it.job().retries.back_off == 1


def test_attempts_are_counted_to_the_last_and_the_error_is_kept(stage: Make) -> None:
    it = stage("retry { attempts = 3, first = 1s, jitter = 0 }")
    it.take(item("a", 1), item("b", 2))
    calls = 0
    while claims := [each for each in it.claim() if each.key == "a"]:
        outcome = outcome_of(it.receiver, Step.DELIVER, Answer(500, "oops"), claims[0].tries, 0.0)
        it.finish(claims, outcome)
        calls += 1
        it.now += 31_000
    assert (calls, it.job().failed) == (3, 1)
    (error,) = it.ledger.errors("j", 10)
    assert (error.unit, error.step, error.attempts, error.error) == ("a", "deliver", 3, "HTTP 500: oops (after 3 attempts)")


def test_a_suspension_of_three_hours_costs_no_attempt_and_one_probe_per_interval(stage: Make) -> None:
    it = stage("suspension { probe = 60s, most = 15m }")
    it.take(*(item(f"k{number}", number) for number in range(100)))
    it.finish(it.claim(), SLEEPS)
    end, probes = it.now + 3 * 3_600_000, 0
    while it.now < end:
        claims = it.claim()
        assert len(claims) <= 1
        probes += len(claims)
        it.finish(claims, SLEEPS)
        it.now += 15_000
    (gate,) = it.ledger.gates()
    assert (probes, gate.probes, gate.is_open, gate.waiting) == (14, 14, False, 100)
    it.now += 900_000
    it.finish(it.claim())
    assert len(it.claim(wanted=99)) == 20
    assert it.another().waiting("r", 200)[0].attempts == 0


def test_calls_under_way_when_the_gate_shuts_are_held_against_no_row(stage: Make) -> None:
    it = stage()
    it.take(*(item(f"k{number}", number) for number in range(4)))
    claims = it.claim()
    it.finish(claims[:1], SLEEPS)
    it.finish(claims[1:2], Failed("HTTP 418"))
    it.finish(claims[2:3], Again(RetryMode.BACK_OFF, 1_000, "HTTP 500"))
    it.finish(claims[3:])
    assert (it.job().failed, it.job().processed, it.job().retries.back_off) == (0, 1, 0)
    assert {each.attempts for each in it.ledger.waiting("r", 9)} == {0}


@pytest.mark.parametrize("answer", [Failed("HTTP 418"), Failed("HTTP 500 (after 10 attempts)", RetryMode.BACK_OFF)])
def test_five_rows_that_a_troubled_receiver_fails_are_open_again_in_their_order(stage: Make, answer: Outcome) -> None:
    it = stage("suspension.probe = 60s")
    it.take(*(item(f"k{number}", number) for number in range(5)), *(item(f"k{number}", number + 5) for number in range(5)))
    claims = it.claim()
    for each in claims[:4]:
        it.finish([each], answer)
    assert it.job().failed == 4
    it.finish(claims[4:], answer)
    assert (it.job().failed, it.job().open, it.ledger.errors("j", 9)) == (0, 10, [])
    it.now += 60_000
    # Those of different units are due at the same instant: any of them is the probe, and the row behind it goes next.
    first, second = [[f"k{number}-{number + behind}" for number in range(5)] for behind in (0, 5)]
    (probe,) = it.claim()
    at = first.index(probe.notification_id)
    it.finish([probe])
    assert sorted(each.notification_id for each in it.claim()) == sorted([*first[:at], *first[at + 1 :], second[at]])


def test_a_row_that_is_open_again_goes_before_a_later_one_whose_call_was_under_way(stage: Make) -> None:
    it = stage("suspension.probe = 60s")
    it.take(*(item(f"k{number}", number) for number in range(5)), item("k0", 5))
    claims = it.claim()
    it.finish(claims[:1], Failed("HTTP 418"))
    later = it.claim()
    it.finish(claims[1:], Failed("HTTP 418"))
    it.finish(later, SLEEPS)
    it.now += 60_000
    it.finish([each for each in it.claim() if each.key != "k0"])
    it.claim(wanted=0)
    it.now += 60_000
    assert [each for each in it.deliver_all() if each.startswith("k0")] == ["k0-0", "k0-5"]
    assert it.job().late == 0


@pytest.mark.parametrize("step", [Step.ANNOUNCE, Step.DELIVER])
def test_a_failed_row_is_delivered_again_before_a_later_one_whose_call_must_be_repeated(stage: Make, step: Step) -> None:
    it = stage("steps = announce-deliver")
    it.take(item("a", 1), item("a", 2))
    it.finish(it.claim(step=Step.ANNOUNCE), Failed("HTTP 418"))
    if step is Step.DELIVER:
        it.finish(it.claim(step=Step.ANNOUNCE))
    running = it.claim(step=step)
    assert it.ledger.retry_failed("j", with_late=False) == (1, 0)
    it.finish(running, Done() if step is Step.ANNOUNCE else Again(RetryMode.BACK_OFF, 1_000, "HTTP 500"))
    it.now += 1_000
    assert it.deliver_all() == ["a-1", "a-2"]


def test_too_many_calls_wait_and_no_attempt_is_counted(stage: Make) -> None:
    it = stage()
    it.take(item("a", 1))
    it.finish(it.claim(), Limited("429", 2_000))
    it.now += 1_999
    assert it.claim() == []
    it.now += 1
    assert it.claim()[0].tries == Tries(limits=1)
    assert it.job().retries.limit == 1


def test_not_eligible_is_not_failed(stage: Make) -> None:
    it = stage()
    it.take(item("a", 1), item("a", 2))
    it.finish(it.claim(), Rejected("HTTP 422"))
    assert it.deliver_all() == ["a-2"]
    assert (it.job().rejected, it.job().failed) == (1, 0)
    (error,) = it.ledger.errors("j", 9)
    assert (error.status, error.error, error.attempts) == ("rejected", "HTTP 422", 1)


def test_a_unit_is_announced_verified_and_then_delivered_by_its_first_row(stage: Make) -> None:
    it = stage("steps = announce-verify-deliver", "verify.delay = 30s")
    it.take(item("a", 1), item("a", 2))
    assert it.claim() == []
    it.finish(it.claim(step=Step.ANNOUNCE))
    assert it.claim(step=Step.VERIFY) == []
    it.now += 30_000
    it.finish(it.claim(step=Step.VERIFY), Again(RetryMode.VERIFICATION, 30_000, "HTTP 404"))
    it.now += 30_000
    (asked,) = it.claim(step=Step.VERIFY)
    assert asked.tries == Tries(0, 1)
    it.finish([asked])
    assert it.deliver_all() == ["a-1", "a-2"]
    it.take(item("a", 3), job="k")
    assert it.deliver_all() == ["a-3"]


def test_a_unit_that_the_receiver_forgot_is_announced_again(stage: Make) -> None:
    it = stage("steps = announce-deliver")
    it.take(item("a", 1), item("a", 2))
    it.finish(it.claim(step=Step.ANNOUNCE))
    it.finish(it.claim(), Again(RetryMode.BACK_OFF, 1_000, "HTTP 404", announces=True))
    it.now += 1_000
    (announced,) = it.claim(step=Step.ANNOUNCE)
    assert announced.tries.attempts == 1
    it.finish([announced])
    assert it.deliver_all() == ["a-1", "a-2"]


def test_a_unit_that_the_receiver_forgot_before_it_was_found_is_announced_once_more_and_its_questions_stay_bounded(
    stage: Make,
) -> None:
    it = stage("steps = announce-verify-deliver", "verify { delay = 1s, attempts = 6 }", "retry.attempts = 100")
    receiver = it.ledger.receivers["r"]
    it.take(item("a", 1), item("a", 2))
    asked: list[Step] = []
    while it.job().failed == 0 and len(asked) < 50:
        it.now += 300_000
        for step in receiver.steps.all:
            for claim in it.claim(step=step):
                asked.append(step)
                reply = Answer(404) if step is Step.VERIFY else Answer(201)
                # An attempt between two questions does not begin them anew.
                reply = Answer(500) if asked == [Step.ANNOUNCE, Step.VERIFY] else reply
                it.finish([claim], outcome_of(receiver, step, reply, claim.tries, 0))
    assert asked == [Step.ANNOUNCE, *[Step.VERIFY] * 4, Step.ANNOUNCE, *[Step.VERIFY] * 3]
    (error,) = it.ledger.errors("j", 9)
    assert (error.step, error.attempts) == (Step.VERIFY, 6)


def test_a_unit_that_is_forgotten_at_delivery_gets_all_questions_again(stage: Make) -> None:
    it = stage("steps = announce-verify-deliver", "verify.delay = 1s")
    it.take(item("a", 1))
    it.finish(it.claim(step=Step.ANNOUNCE))
    for outcome in (Again(RetryMode.VERIFICATION, 1_000, "HTTP 404"), Done()):
        it.now += 1_000
        it.finish(it.claim(step=Step.VERIFY), outcome)
    (delivered,) = it.claim()
    assert delivered.tries == Tries(0, 1)
    it.finish([delivered], Again(RetryMode.BACK_OFF, 1_000, "HTTP 404", announces=True))
    it.now += 1_000
    it.finish(it.claim(step=Step.ANNOUNCE))
    it.now += 1_000
    (asked,) = it.claim(step=Step.VERIFY)
    assert asked.tries == Tries(1, 0)


def test_a_receiver_that_forgot_its_units_while_it_slept_gets_them_announced_again(stage: Make) -> None:
    it = stage("steps = announce-deliver", "suspension { probe = 60s, most = 15m }")
    it.take(item("a", 1))
    it.finish(it.claim(step=Step.ANNOUNCE))
    it.finish(it.claim(), SLEEPS)
    it.now += 60_000
    it.finish(it.claim(), Again(RetryMode.BACK_OFF, 1_000, "HTTP 404", announces=True))
    it.now += 1_000
    it.finish(it.claim(step=Step.ANNOUNCE))
    assert it.deliver_all() == ["a-1"]


def test_a_rejected_announcement_rejects_all_open_rows_of_the_unit(stage: Make) -> None:
    it = stage("steps = announce-deliver")
    it.take(item("a", 1), item("a", 2), item("a", 3), item("b", 4))
    claims = it.claim(step=Step.ANNOUNCE)
    it.finish([each for each in claims if each.key == "a"], Rejected("HTTP 422"))
    assert (it.job().rejected, it.job().open) == (3, 1)


def test_what_cannot_be_delivered_begins_as_failed_with_its_reason(stage: Make) -> None:
    it = stage()
    it.take(item("a", 1), item("", 2, defect="the record has no key"))
    assert it.deliver_all() == ["a-1"]
    assert (it.job().failed, it.ledger.errors("j", 9)[0].error) == (1, "the record has no key")


def test_a_failed_row_lets_the_next_one_go_or_holds_it(stage: Make) -> None:
    it = stage("on-failed = hold")
    it.take(item("a", 1), item("a", 2))
    it.finish(it.claim(), Failed("HTTP 400"))
    assert (it.claim(), it.job().state, it.job().held_units) == ([], "HELD", 1)
    it.take(item("a", 3), job="k")
    assert it.claim() == []
    ((unit, _),) = it.ledger.held("r", 9)
    it.ledger.release_unit("r", unit)
    assert it.deliver_all() == ["a-2", "a-3"]


def test_an_attempt_at_a_held_unit_is_made_again_by_retry_failed(stage: Make) -> None:
    it = stage("on-failed = hold")
    it.take(item("a", 1), item("a", 2))
    it.finish(it.claim(), Failed("HTTP 400"))
    assert it.ledger.retry_failed("j", with_late=False) == (1, 0)
    assert it.deliver_all() == ["a-1", "a-2"]


def test_an_announced_unit_that_has_no_more_rows_is_asked_for_nothing_until_one_comes(stage: Make) -> None:
    it = stage("steps = announce-deliver")
    it.take(item("a", 1))
    it.finish(it.claim(step=Step.ANNOUNCE))
    assert it.deliver_all() == ["a-1"]
    for step in (Step.ANNOUNCE, Step.DELIVER):
        assert it.claim(step=step) == []
    it.take(item("a", 2), job="k")
    assert it.claim(step=Step.ANNOUNCE) == []
    assert it.deliver_all() == ["a-2"]


def test_rows_are_deleted_a_while_after_their_job_and_then_the_job(stage: Make) -> None:
    it = stage()
    it.take(item("a", 1), item("b", 2))
    it.deliver_all()
    it.now += 1_000_000
    assert it.ledger.delete_expired() == 0
    it.now += 1
    assert (it.ledger.delete_expired(), it.ledger.delete_expired(), it.ledger.jobs()) == (2, 0, [])


def test_those_of_a_live_job_stay_while_its_source_is_away(stage: Make) -> None:
    it = stage()
    it.ledger.ensure_live("r", "live")
    intake = it.ledger.open_intake("live-r", "w1")
    assert intake is not None
    it.ledger.take_in(intake, "r", Portion([item("a", 1)], {"p": 1}, is_end=True))
    it.deliver_all()
    it.now += 5_000_000
    assert it.ledger.delete_expired() == 0
    again = it.ledger.open_intake("live-r", "w1")
    assert again is not None
    assert it.ledger.take_in(again, "r", Portion([item("a", 1)], {"p": 1}, is_end=True)) == 0
    assert it.ledger.delete_expired() == 1


def test_a_refused_announcement_rejects_any_number_of_rows_each_with_its_reason(
    stage: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("notification_service.delivery.ledger.tables.MOST", 10)
    it = stage("steps = announce-deliver")
    it.take(*(item("a", number) for number in range(35)), item("b", 1))
    it.take(item("a", 99), job="k")
    first, _ = it.claim(step=Step.ANNOUNCE)
    it.finish([first], Rejected("HTTP 422: no such account"))
    assert (it.job().rejected, it.job("k").rejected, it.job("k").state) == (35, 1, JobState.COMPLETE)
    errors = [*it.ledger.errors("j", 99), *it.ledger.errors("k", 9)]
    assert {(each.status, each.error) for each in errors} == {("rejected", "HTTP 422: no such account")}
    assert ([each.attempts for each in errors], len(errors)) == ([1, *[0] * 35], 36)


@pytest.mark.slow
def test_a_refused_announcement_rejects_more_rows_than_a_statement_has_parameters(stage: Make) -> None:
    it = stage("steps = announce-deliver")
    it.ledger.start_job("j", "r", "s", "ann")
    for first in range(0, 70_000, 10_000):
        it.take(*(item("a", number) for number in range(first, first + 10_000)), seals=first == 60_000, position=first + 1)
    it.finish(it.claim(step=Step.ANNOUNCE), Rejected("HTTP 422"))
    assert (it.job().rejected, it.job().state) == (70_000, JobState.COMPLETE)
