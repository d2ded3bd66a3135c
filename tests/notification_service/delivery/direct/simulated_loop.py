"""An event loop in simulated time, in one thread: time goes on when all wait, so a busy machine changes nothing."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any

import pytest


class Broken(Exception):
    """A promise that did not hold."""


class SimulatedLoop(asyncio.SelectorEventLoop):
    """An event loop whose clock goes on at once when nothing is to be done before the next timer. It has no threads."""

    def __init__(self, chance: Random) -> None:
        super().__init__(_Selector(self))
        self.chance = chance
        self.instant = 1_000.0
        self.lasts = 0.0
        """How long the call of a transport takes that has just been made, in seconds."""

    def time(self) -> float:
        return self.instant

    def run_in_executor(self, _executor: Any, func: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:  # type: ignore[override]
        future = self.create_future()

        def work() -> None:
            if future.cancelled() and self.chance.random() < 0.5:
                return  # The process died before.
            self.lasts = 0.0
            try:
                found, error = func(*args), None
            except Exception as raised:  # It is raised where it is awaited.
                found, error = None, raised
            self.call_later(self.lasts + self.chance.uniform(0, 0.01), tell, found, error)

        def tell(found: Any, error: Exception | None) -> None:
            if not future.done():
                future.set_result(found) if error is None else future.set_exception(error)

        self.call_later(self.chance.uniform(0.0005, 0.01), work)
        return future

    def run(self, body: Callable[[], Awaitable[None]]) -> None:
        """Run to the end, with this loop's clock as that of direct delivery, and close the loop."""

        async def act() -> None:
            await body()

        with pytest.MonkeyPatch.context() as patch, asyncio.Runner(loop_factory=lambda: self) as runner:
            patch.setattr("notification_service.delivery.direct.consumer.monotonic", self.time)
            runner.run(act())


class _Selector(selectors.SelectSelector):
    def __init__(self, loop: SimulatedLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise Broken("all wait for ever")
        self._loop.instant += max(0.0, timeout)
        return super().select(0)


def running_loop() -> SimulatedLoop:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, SimulatedLoop), "time passes in reality"
    return loop


async def pass_time(seconds: float) -> None:
    """Let simulated time pass."""
    running_loop()
    await asyncio.sleep(seconds)
