"""How tests wait: for an event, by asking until the answer is true. No other module sleeps (tests/house/test_waits.py).

A deadline is there to end a hang. A busy machine may take many times as long as a quiet one, so none is shorter than a minute.
"""

import asyncio
from collections.abc import Callable
from random import Random
from threading import Event
from time import monotonic, sleep
from typing import TypeVar

T = TypeVar("T")

DEADLINE_SECONDS = 180
_LOOK_SECONDS = 0.01


def wait_until(question: Callable[[], T], what: str, seconds: float = DEADLINE_SECONDS, look_seconds: float = _LOOK_SECONDS) -> T:
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


async def async_wait_until(question: Callable[[], T], what: str, seconds: float = DEADLINE_SECONDS) -> T:
    """As `wait_until`; meanwhile the other tasks of the event loop go on."""
    until = monotonic() + seconds
    while True:
        answer = question()
        if answer:
            return answer
        assert monotonic() < until, f"not within {seconds} s: {what}"
        await asyncio.sleep(_LOOK_SECONDS)


async def async_yield() -> None:
    """Let the other tasks of the event loop have one step each."""
    await asyncio.sleep(0)


def pause_until(question: Callable[[], object], seconds: float, look_seconds: float = _LOOK_SECONDS) -> None:
    """Wait for an event that may not come, so many seconds at most: a strike comes then, with the event or without."""
    until = monotonic() + seconds
    while not question() and monotonic() < until:
        sleep(look_seconds)


def wait_ms(milliseconds: float, until: Event | None = None) -> None:
    """What a part of the service gets that has to be given a way to wait between two of its looks, or until the event is set."""
    (until or Event()).wait(milliseconds / 1_000)


def pause_at_random(chance: Random, least: float, most: float) -> None:
    """Let so many seconds pass: nothing marks the moment of a strike that does harm, nor how long one has to last."""
    sleep(chance.uniform(least, most))


def linger(seconds: float) -> None:
    """Take long where that is what is tried: a late answer, an outage, a steady load. No assertion may rest on it."""
    sleep(seconds)


async def async_linger(seconds: float) -> None:
    """As `linger`; meanwhile the other tasks of the event loop go on."""
    await asyncio.sleep(seconds)
