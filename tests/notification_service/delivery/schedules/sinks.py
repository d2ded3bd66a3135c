"""Sinks of schedules on each store, and runners that a test drives with its own clocks."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol, TypeVar

from harness.simulated_schedules.sinks import TopicPlace

from notification_service.delivery.schedules.core import Progress, Request
from notification_service.delivery.schedules.keys import NamedKeys
from notification_service.delivery.schedules.runner import ScheduleRunner
from notification_service.delivery.schedules.settings import KeysSettings, Missed, Schedule, Waiting
from notification_service.delivery.schedules.sink import LedgerSink, RequestSink
from resequencer.clock import Instant, SteadyClock, instant_of

if TYPE_CHECKING:
    from harness.ledger_stage import LedgerStage

    from tests.notification_service.connectors.kafka.stage import KafkaStage

_Found = TypeVar("_Found")
NOON = instant_of("2026-03-28T12:00Z")
HOUR_MS = 3_600_000


class Killed(BaseException):
    """The process has died at this place."""


class Store(Protocol):
    """Where requests go, as several workers and a test see it."""

    def sink(self, worker: str) -> RequestSink: ...

    def made(self) -> list[tuple[str, str]]:
        """Return key and tick of each request that was made."""
        ...

    def let_go(self) -> None:
        """Let the time pass in which a dead worker keeps its right."""
        ...


class LedgerStore:
    def __init__(self, stage: LedgerStage) -> None:
        self._stage = stage
        self._made: list[tuple[str, str]] = []

    def sink(self, worker: str) -> RequestSink:
        return LedgerSink(self._stage.another(), "hourly", "r", worker)

    def made(self) -> list[tuple[str, str]]:
        while claims := self._stage.claim():
            values = [json.loads(each.value) for each in claims]
            self._made += [(each["key"], each["tick"]) for each in values]
            self._stage.finish(claims)
        return self._made

    def let_go(self) -> None:
        self._stage.now += 31_000


class TopicStore:
    def __init__(self, topics: KafkaStage) -> None:
        self._topics = topics

    def sink(self, worker: str) -> RequestSink:
        from notification_service.delivery.published_topics import TopicSink

        del worker
        return TopicSink(self._topics.settings(), "hourly", self._topics.topics.notifications, f"{self._topics.group}-schedule")

    def made(self) -> list[tuple[str, str]]:
        values = [json.loads(each.value) for each in self._topics.outputs()]
        return [(each["key"], each["tick"]) for each in values]

    def let_go(self) -> None:
        """The next worker ends the transaction of a dead one."""


class MemoryStore:
    """The topic of the simulation, which keeps what is tested of a real one."""

    def __init__(self) -> None:
        self._topic = TopicPlace()

    def sink(self, worker: str) -> RequestSink:
        return self._topic.sink(worker, Worlds().steady())

    def made(self) -> list[tuple[str, str]]:
        values = [json.loads(each) for each in self._topic.records]
        return [(each["key"], each["tick"]) for each in values]

    def let_go(self) -> None:
        """Who begins next fences a dead worker."""


class DyingSink:
    """Dies with its worker before the `dies_at`-th call that changes the store (from 1), or right behind it."""

    def __init__(self, sink: RequestSink, dies_at: int, *, is_behind: bool) -> None:
        self._sink, self._left, self._is_behind = sink, dies_at, is_behind

    def find(self) -> Progress | None:
        return self._sink.find()

    def begin(self) -> Progress | None:
        return self._counted(self._sink.begin)

    def store(self, requests: Sequence[Request], progress: Progress) -> None:
        self._counted(lambda: self._sink.store(requests, progress))

    def count_waiting(self) -> int | None:
        return self._sink.count_waiting()

    def end(self) -> None:
        if self._left > 0:
            self._sink.end()

    def _counted(self, call: Callable[[], _Found]) -> _Found:
        self._left -= 1
        if self._left == 0 and not self._is_behind:
            raise Killed
        found = call()
        if self._left == 0:
            raise Killed
        return found


class Worlds:
    """A clock for all workers of a test. It is `ahead` of the time that passes; a worker that begins believes it."""

    def __init__(self) -> None:
        self.at: Instant = NOON - 1_000
        self.ahead = 0

    def steady(self, trusted_ms: int = 0) -> SteadyClock:
        """Return the clock of a worker that begins now."""
        return SteadyClock(lambda: self.at + self.ahead, lambda: self.at, trusted_ms=trusted_ms)

    def advance(self, milliseconds: int) -> None:
        self.at += milliseconds


def runner(
    clock: Worlds,
    sink: RequestSink,
    keys: Sequence[str],
    missed: Missed = Missed.ONCE,
    cron: str = "0 * * * *",
    trusted_ms: int = 0,
) -> ScheduleRunner:
    settings = Schedule(cron, "UTC", KeysSettings(tuple(keys), "", "", "{}"), "", "r", '{"kind": "REPORT"}', missed, Waiting.ALL)
    return ScheduleRunner("hourly", settings, NamedKeys(keys), sink, clock.steady(trusted_ms))
