"""Retry of a call until it is answered."""

import logging
from collections.abc import Callable

import pytest

from guardian.backoff import BackoffSettings, RetryWithBackoff, Stopped
from resequencer.errors import OwnershipLost, TransientError


class Server:
    """Fails as often as a test says."""

    def __init__(self, failures: int, error: Exception | None = None) -> None:
        self.failures = failures
        self.error = error
        self.calls = 0

    def __call__(self) -> str:
        self.calls += 1
        if self.calls <= self.failures:
            raise TransientError("the disk is full")
        if self.error is not None:
            raise self.error
        return "done"


@pytest.fixture
def pauses() -> list[int]:
    return []


@pytest.fixture
def retry(pauses: list[int]) -> RetryWithBackoff:
    return RetryWithBackoff(BackoffSettings(100, 5_000), pauses.append, lambda: False)


def test_what_is_answered_at_once_costs_no_pause(retry: RetryWithBackoff, pauses: list[int]) -> None:
    assert retry.until_answered("storage", Server(0)) == "done"
    assert (pauses, retry.unavailable) == ([], None)


def test_pauses_double_up_to_the_longest(retry: RetryWithBackoff, pauses: list[int]) -> None:
    retry.until_answered("storage", Server(8))
    assert pauses == [100, 200, 400, 800, 1_600, 3_200, 5_000, 5_000]


def test_the_next_time_pauses_begin_short_again(retry: RetryWithBackoff, pauses: list[int]) -> None:
    retry.until_answered("storage", Server(3))
    retry.until_answered("storage", Server(1))
    assert pauses == [100, 200, 400, 100]


def test_while_it_waits_it_says_what_is_away_and_why() -> None:
    seen: list[tuple[str | None, str | None]] = []
    retry = RetryWithBackoff(BackoffSettings(), lambda _: seen.append((retry.unavailable, retry.reason)), lambda: False)
    retry.until_answered("output", Server(2))
    assert seen == [("output", "the disk is full")] * 2
    assert (retry.unavailable, retry.reason) == (None, None)


def test_it_logs_once_when_it_begins_and_once_when_it_ends(retry: RetryWithBackoff, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "resequencer.guardian"):
        retry.until_answered("output", Server(50))
    assert [record.getMessage() for record in caplog.records] == [
        "the output is unavailable, retrying until it answers: the disk is full",
        "the output answers again",
    ]


def test_other_errors_pass_and_are_an_answer(retry: RetryWithBackoff) -> None:
    with pytest.raises(OwnershipLost):
        retry.until_answered("storage", Server(2, OwnershipLost("another worker")))
    assert retry.unavailable is None


@pytest.mark.parametrize("failures", [1, 5])
def test_told_to_stop_it_gives_up_at_the_next_failure(failures: int, pauses: list[int]) -> None:
    is_stopping: Callable[[], bool] = lambda: len(pauses) >= failures - 1  # noqa: E731 - as handed in.
    retry = RetryWithBackoff(BackoffSettings(), pauses.append, is_stopping)
    server = Server(99)
    with pytest.raises(Stopped, match="stopped while the output was unavailable: the disk is full"):
        retry.until_answered("output", server)
    assert server.calls == failures


def test_told_to_stop_it_still_takes_an_answer() -> None:
    retry = RetryWithBackoff(BackoffSettings(), lambda _: None, lambda: True)
    assert retry.until_answered("output", Server(0)) == "done"
