"""What each answer of a receiver means: the table of docs/delivery.md, row by row."""

import pytest
from harness.receivers import receiver

from notification_service.delivery.core.answers import (
    Again,
    Answer,
    Done,
    Failed,
    Limited,
    NoAnswer,
    Outcome,
    Rejected,
    Suspended,
    Trouble,
    outcome_of,
)
from notification_service.delivery.core.jobs import RetryMode, Tries
from notification_service.delivery.settings import Step

PLAIN = receiver()
ANNOUNCED = receiver("steps = announce-verify-deliver")
CONFIGURED = receiver(
    'suspension.when { status = [500], body = "currently suspended" }',
    'limit.when.body = "5 connections allowed"',
    "reject.when.status = [422]",
    "done.when { status = [400], body = already }",
)


def outcome(reply: Answer | NoAnswer, step: Step = Step.DELIVER, of: object = PLAIN, tries: Tries | None = None) -> Outcome:
    return outcome_of(of, step, reply, tries or Tries(), 0.0)  # type: ignore[arg-type]


@pytest.mark.parametrize("status", [200, 201, 204, 299, 409])
@pytest.mark.parametrize("step", list(Step))
def test_the_step_is_done(status: int, step: Step) -> None:
    assert outcome(Answer(status), step) == Done()


@pytest.mark.parametrize(
    "reply",
    [
        Answer(503, "", 7_000),
        Answer(401),
        Answer(403),
        NoAnswer(Trouble.UNREACHABLE, "refused"),
        NoAnswer(Trouble.FORBIDDEN, "10.0.0.1"),
    ],
)
def test_the_receiver_sleeps_and_no_attempt_is_counted_however_many_there_were(reply: Answer | NoAnswer) -> None:
    found = outcome(reply, tries=Tries(1_000, 1_000))
    assert isinstance(found, Suspended)
    assert found.after_ms == (7_000 if isinstance(reply, Answer) and reply.status == 503 else None)


def test_five_connections_allowed_is_no_suspension() -> None:
    assert isinstance(outcome(Answer(500, "sorry, 5 connections allowed"), of=CONFIGURED), Limited)
    assert isinstance(outcome(Answer(500, "it is currently suspended"), of=CONFIGURED), Suspended)


@pytest.mark.parametrize(("retry_after", "wait"), [(3_000, 3_000), (None, 1_000), (0, 1_000), (10**12, 900_000)])
def test_too_many_calls_wait_as_the_answer_says_within_what_is_configured(retry_after: int | None, wait: int) -> None:
    assert outcome(Answer(429, "slow", retry_after)) == Limited("HTTP 429: slow", wait)


def test_each_further_limit_of_a_row_makes_its_wait_longer_up_to_the_most_and_costs_no_attempt() -> None:
    waits = [outcome(Answer(429, "", 0), tries=Tries(9, 0, limits)) for limits in range(11)]
    seconds = [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300]
    assert waits == [Limited("HTTP 429", 1_000 * each) for each in seconds]
    assert outcome(Answer(429, "", 600_000), tries=Tries(0, 0, 99)) == Limited("HTTP 429", 600_000), "what it asks for holds"


def test_what_a_suspension_means_for_a_unit_that_alone_meets_it_is_a_failed_attempt_if_there_was_an_answer() -> None:
    for reply in (Answer(403), Answer(503, "", 7_000)):
        found = [outcome(reply, tries=Tries(attempts)) for attempts in (0, 9)]
        alone = [each.alone for each in found if isinstance(each, Suspended)]
        failed = Failed(f"{reply} (after 10 attempts)", RetryMode.BACK_OFF)
        assert alone == [Again(RetryMode.BACK_OFF, 1_000, str(reply)), failed]
    gone = outcome(NoAnswer(Trouble.UNREACHABLE, "refused"))
    assert isinstance(gone, Suspended)
    assert gone.alone is None


def test_what_a_receiver_configures_comes_before_the_status() -> None:
    assert outcome(Answer(422, "not eligible"), of=CONFIGURED) == Rejected("HTTP 422: not eligible")
    assert outcome(Answer(422, "not eligible")) == Failed("HTTP 422: not eligible")
    assert outcome(Answer(400, "is already there"), of=CONFIGURED) == Done()
    assert isinstance(outcome(Answer(400, "bad"), of=CONFIGURED), Failed)


@pytest.mark.parametrize("status", [408, 500, 502, 503, 504])
def test_a_transient_status_is_tried_again_after_a_growing_wait(status: int) -> None:
    waits = []
    for attempts in range(9):
        found = outcome(Answer(status), tries=Tries(attempts))
        assert isinstance(found, Again)
        assert (found.mode, found.announces) == (RetryMode.BACK_OFF, False)
        waits.append(found.after_ms)
    assert waits == [1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 64_000, 128_000, 256_000]
    assert outcome(Answer(status), tries=Tries(9)) == Failed(f"HTTP {status} (after 10 attempts)", RetryMode.BACK_OFF)


def test_so_is_a_connection_that_broke_after_the_call_was_sent() -> None:
    broken = NoAnswer(Trouble.BROKEN, "no answer within 10 s")
    assert isinstance(outcome(broken), Again)
    assert isinstance(outcome(broken, tries=Tries(9)), Failed)


def test_jitter_prolongs_a_wait_by_a_fifth_at_most() -> None:
    found = outcome_of(PLAIN, Step.DELIVER, Answer(500), Tries(), 1.0)
    assert isinstance(found, Again)
    assert found.after_ms == 1_200


def test_what_is_not_found_yet_is_asked_for_again_and_fails_after_so_many_questions() -> None:
    assert outcome(Answer(404), Step.VERIFY, ANNOUNCED, Tries(50, 3)) == Again(RetryMode.VERIFICATION, 30_000, "HTTP 404")
    last = outcome(Answer(404), Step.VERIFY, ANNOUNCED, Tries(0, 19))
    assert last == Failed("HTTP 404 (not found after 20 questions)", RetryMode.VERIFICATION)


def test_half_way_through_its_questions_it_is_announced_again_for_the_receiver_may_have_forgotten_it() -> None:
    found = [outcome(Answer(404), Step.VERIFY, ANNOUNCED, Tries(0, questions)) for questions in range(19)]
    assert [isinstance(each, Again) and each.announces for each in found] == [questions == 9 for questions in range(19)]
    assert {each.mode for each in found if isinstance(each, Again)} == {RetryMode.VERIFICATION}


def test_what_is_not_found_at_delivery_is_announced_again_where_units_are_announced() -> None:
    found = outcome(Answer(404), Step.DELIVER, ANNOUNCED)
    assert isinstance(found, Again)
    assert found.announces
    last = outcome(Answer(404), Step.DELIVER, ANNOUNCED, Tries(9))
    assert last == Failed("HTTP 404 (after 10 attempts)", RetryMode.BACK_OFF, is_unknown=True)
    assert outcome(Answer(404)) == Failed("HTTP 404")
    assert outcome(Answer(404), Step.ANNOUNCE, ANNOUNCED) == Failed("HTTP 404")


@pytest.mark.parametrize("status", [301, 302, 307, 400, 405, 410, 413, 418, 501, 505])
def test_anything_else_fails_at_once(status: int) -> None:
    assert outcome(Answer(status)) == Failed(f"HTTP {status}")
