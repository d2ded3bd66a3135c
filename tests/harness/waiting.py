"""Waits for another process: repeats a question until the answer is true, instead of sleeping for a fixed time."""

from collections.abc import Callable
from time import monotonic, sleep
from typing import TypeVar

T = TypeVar("T")

_LOOK_SECONDS = 0.01


def wait_until(question: Callable[[], T], what: str, seconds: float = 60, look_seconds: float = _LOOK_SECONDS) -> T:
    """Return the first true answer; fail with `what` if there is none in time.

    With `look_seconds` 0 it asks without a pause, so that it returns at once.
    """
    until = monotonic() + seconds
    while True:
        answer = question()
        if answer:
            return answer
        assert monotonic() < until, f"not within {seconds} s: {what}"
        sleep(look_seconds)
