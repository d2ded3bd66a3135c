"""What the receiver answers a unit alone, again and again, is counted in the ledger and holds up no other unit."""

from collections.abc import Callable
from itertools import cycle, pairwise

import pytest
from harness.ledger_stage import LedgerStage, item

from notification_service.delivery.core.answers import Answer, Outcome, outcome_of
from notification_service.delivery.core.jobs import Claim, JobState
from notification_service.delivery.ledger.finishing import ClaimResult
from notification_service.delivery.settings import Step
from tests.notification_service.delivery.ledger.test_rows import Make

QUICK = ("suspension { probe = 20s, most = 60s }", "retry { attempts = 3, first = 5s, jitter = 0 }")
REFUSED = pytest.mark.parametrize("refusal", [Answer(403), Answer(503, "", 86_400_000)], ids=["403", "503"])
OK = Answer(201)


class Days:
    """Two workers that call the receiver in turn, each `step_ms`. `shut_ms` is how long the gate was shut."""

    def __init__(self, it: LedgerStage, answer: Callable[[Claim], Answer], step_ms: int = 10_000) -> None:
        self._it, self.answer, self._step_ms = it, answer, step_ms
        self._workers = cycle([("w1", it.ledger), ("w2", it.another())])
        self.calls: list[tuple[int, Claim]] = []
        self.shut_ms = 0

    def pass_by(self, milliseconds: int) -> None:
        it, end = self._it, self._it.now + milliseconds
        while it.now < end:
            owner, ledger = next(self._workers)
            for step in it.receiver.steps.all:
                claims = ledger.claim("r", step, owner, 50).claims
                self.calls += [(it.now, each) for each in claims]
                if claims:
                    ledger.finish("r", [ClaimResult(each, self._outcome(each)) for each in claims])
            self.shut_ms += 0 if it.ledger.gates()[0].is_open else self._step_ms
            it.now += self._step_ms

    def _outcome(self, claim: Claim) -> Outcome:
        return outcome_of(self._it.receiver, claim.step, self.answer(claim), claim.tries, 0.0)

    def called(self, key: str) -> list[int]:
        """Return the instants of the calls for a unit."""
        return [at for at, claim in self.calls if claim.key == key]


def take_a_stream(it: LedgerStage, days: Days, count: int, until: Callable[[], object]) -> None:
    """Let rows of other units come in, one each ten seconds, until that is true."""
    for _ in range(count):
        if until():
            return
        it.take(item(f"other{it.now}", 1), job=f"others{it.now}")
        days.pass_by(10_000)
    pytest.fail("it took too long")


@REFUSED
def test_a_unit_that_alone_is_refused_keeps_the_others_waiting_three_times_and_then_it_fails(
    stage: Make, refusal: Answer
) -> None:
    it = stage(*QUICK)
    it.take(item("bad", 1))
    days = Days(it, lambda claim: refusal if claim.key == "bad" else OK)
    take_a_stream(it, days, 60, lambda: it.job().failed)
    assert it.job().state is JobState.COMPLETE
    assert days.shut_ms == 3 * (20_000 if refusal.status == 403 else 60_000)
    (error,) = it.ledger.errors("j", 9)
    assert (error.attempts, error.error) == (3, f"HTTP {refusal.status} (after 3 attempts)")
    assert it.ledger.gates()[0].is_open


def test_so_do_its_next_rows_without_keeping_the_others_waiting(stage: Make) -> None:
    it = stage(*QUICK)
    it.take(*(item("bad", number) for number in range(4)))
    days = Days(it, lambda claim: Answer(403) if claim.key == "bad" else OK)
    take_a_stream(it, days, 60, lambda: it.job().failed)
    before = days.shut_ms
    take_a_stream(it, days, 60, lambda: it.job().open == 0)
    assert (it.job().failed, days.shut_ms) == (4, before)


def test_a_unit_that_was_served_once_is_not_known_as_refused_any_more(stage: Make) -> None:
    it = stage(*QUICK, "on-failed = hold")
    it.take(item("bad", 1), item("bad", 2))
    days = Days(it, lambda claim: Answer(403) if claim.key == "bad" else OK)
    take_a_stream(it, days, 60, lambda: it.job().failed)
    it.ledger.retry_failed("j", with_late=False)
    days.answer = lambda _claim: OK
    days.pass_by(10_000)
    assert it.job().processed == 1
    days.answer = lambda _claim: Answer(401)
    days.pass_by(600_000)
    assert (it.job().failed, it.job().open) == (0, 1)


@pytest.mark.parametrize("steps", ["deliver", "announce-deliver"])
def test_a_token_that_was_revoked_fails_no_row(stage: Make, steps: str) -> None:
    """Also where it is revoked for deliveries alone, and announcements succeed on."""
    it = stage(*QUICK, f"steps = {steps}", "retry.attempts = 1")
    it.take(*(item(f"k{number}", number) for number in range(10)))
    days = Days(it, lambda claim: OK if claim.step is Step.ANNOUNCE else Answer(403))
    for number in range(30):
        it.take(item(f"more{number}", 1), job=f"more{number}")
        days.pass_by(30_000)
    assert sum(each.failed for each in it.ledger.jobs()) == 0
    days.answer = lambda _claim: OK
    days.pass_by(100_000)
    assert sum(each.processed for each in it.ledger.jobs()) == 40


def test_a_token_that_is_revoked_again_and_again_fails_no_row(stage: Make) -> None:
    it = stage(*QUICK, "retry.attempts = 1")
    days = Days(it, lambda _claim: OK)
    for number in range(8):
        it.take(*(item(f"k{each}", number) for each in range(5)), job=f"j{number}")
        days.answer = lambda _claim: Answer(401)
        days.pass_by(100_000)
        days.answer = lambda _claim: OK
        days.pass_by(100_000)
    assert {(each.failed, each.processed) for each in it.ledger.jobs()} == {(0, 5)}


def test_many_units_that_are_refused_at_once_keep_the_others_waiting_as_long_as_one(stage: Make) -> None:
    it = stage(*QUICK)
    it.take(*(item(f"bad{number}", number) for number in range(15)))
    days = Days(it, lambda claim: Answer(403) if claim.key.startswith("bad") else OK)
    take_a_stream(it, days, 60, lambda: it.job().failed == 15)
    assert days.shut_ms == 3 * 20_000


def waits_of(days: Days, key: str) -> list[int]:
    found = days.called(key)
    return [(later - earlier) // 1_000 for earlier, later in pairwise(found)]


def test_a_row_that_is_answered_429_waits_longer_each_time_and_no_attempt_is_counted(stage: Make) -> None:
    it = stage("retry { attempts = 2, first = 1s, factor = 2, most = 10s, jitter = 0 }", "suspension { probe = 20s, most = 20s }")
    it.take(item("busy", 1), item("busy", 2))
    days = Days(it, lambda _claim: Answer(429, "", 0), 1_000)
    days.pass_by(50_000)
    assert waits_of(days, "busy") == [1, 2, 4, 8, 10, 10, 10]
    days.answer = lambda _claim: Answer(429, "", 86_400_000)
    days.pass_by(60_000)
    assert waits_of(days, "busy")[8:] == [20, 20], "what it asks for, up to suspension.most"
    (waiting,) = it.ledger.waiting("r", 9)
    assert (waiting.attempts, it.job().failed) == (0, 0)
    days.answer = lambda _claim: OK
    days.pass_by(21_000)
    assert it.job().processed == 2


def test_after_another_answer_the_waits_after_a_429_begin_anew(stage: Make) -> None:
    it = stage("retry { attempts = 5, first = 1s, factor = 2, most = 60s, jitter = 0 }")
    it.take(item("busy", 1), item("busy", 2))
    days = Days(it, lambda _claim: Answer(429), 1_000)
    days.pass_by(7_000)
    assert waits_of(days, "busy") == [1, 2]
    days.answer = lambda _claim: Answer(500)
    days.pass_by(1_000)
    days.answer = lambda _claim: Answer(429)
    days.pass_by(9_000)
    assert waits_of(days, "busy") == [1, 2, 4, 1, 1, 2, 4]
