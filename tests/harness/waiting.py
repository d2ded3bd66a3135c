"""Waits for something that another process does: repeats a question until the answer is true, and never sleeps a fixed time."""

from collections.abc import Callable
from time import monotonic, sleep
from typing import TypeVar

T = TypeVar("T")

_LOOK_SECONDS = 0.01


def wait_until(question: Callable[[], T], what: str, seconds: float = 60, look_seconds: float = _LOOK_SECONDS) -> T:
    """The first answer that is true in the sense of `if`; fails with `what` when there is none in time.

    With `look_seconds` 0 it asks without a pause, to be there at once.
    """
    until = monotonic() + seconds
    while True:
        answer = question()
        if answer:
            return answer
        assert monotonic() < until, f"not within {seconds} s: {what}"
        sleep(look_seconds)
