"""Where the requests of a simulated schedule go: the ledger on SQLite, or a topic in memory; and what strikes them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol, TypeVar

from harness.crashes.points import Crash
from harness.receivers import receiver
from harness.simulated_delivery.struck_ledger import StruckDatabase
from sqlalchemy import select

from notification_service.delivery.ledger.ledger import Ledger
from notification_service.delivery.ledger.tables import JOBS, ROWS
from notification_service.delivery.schedules.core import Progress, Request, decode_progress
from notification_service.delivery.schedules.sink import LedgerSink, RequestSink, ScheduleBusy
from resequencer.clock import SteadyClock
from resequencer.errors import TransientError

_Found = TypeVar("_Found")
_FAULT = 0.03
_DAY_MS = 86_400_000


class NoAnswer(TransientError):
    """The sink does not answer, because the simulation wants it so."""


class Place(Protocol):
    """Where requests go. A `clock` is that of a process."""

    def sink(self, owner: str, clock: SteadyClock) -> RequestSink: ...

    def made(self) -> list[bytes]:
        """Return the values of the requests that were made since this was last asked."""
        ...

    def close(self) -> None: ...


class LedgerPlace:
    def __init__(self, directory: Path, clock: SteadyClock) -> None:
        self._database = StruckDatabase(directory, clock)
        self._seen = 0

    def sink(self, owner: str, clock: SteadyClock) -> RequestSink:
        self._database.clock = clock
        return LedgerSink(Ledger(self._database, [("r", receiver())], 10_000 * _DAY_MS, _DAY_MS), "s", "r", owner)

    def made(self) -> list[bytes]:
        with self._database.read() as connection:
            found = connection.execute(select(ROWS.c.id, ROWS.c.value).where(ROWS.c.id > self._seen).order_by(ROWS.c.id)).all()
            doubled = connection.scalar(select(JOBS.c.duplicates))
        assert not doubled, "the ledger has met a request that it had"
        self._seen = found[-1].id if found else self._seen
        return [each.value for each in found]

    def close(self) -> None:
        self._database.close()


class TopicPlace:
    """Progress is committed with its records, and who begins fences the others, as with Kafka's transactions."""

    def __init__(self) -> None:
        self.records: list[bytes] = []
        self.progress: str | None = None
        self.epoch = 0
        self._seen = 0

    def sink(self, owner: str, clock: SteadyClock) -> RequestSink:
        del owner, clock
        return _MemorySink(self)

    def made(self) -> list[bytes]:
        seen, self._seen = self._seen, len(self.records)
        return self.records[seen:]

    def close(self) -> None:
        """Nothing is kept open."""


class _MemorySink:
    def __init__(self, topic: TopicPlace) -> None:
        self._topic = topic
        self._epoch: int | None = None

    def find(self) -> Progress | None:
        return None if self._topic.progress is None else decode_progress(self._topic.progress)

    def begin(self) -> Progress | None:
        self._topic.epoch += 1
        self._epoch = self._topic.epoch
        return self.find()

    def store(self, requests: Sequence[Request], progress: Progress) -> None:
        if self._epoch != self._topic.epoch:
            raise ScheduleBusy("s")
        self._topic.records += [each.value for each in requests]
        self._topic.progress = progress.encode()

    def count_waiting(self) -> None:
        """As with a topic, it is not known."""

    def end(self) -> None:
        self._epoch = None


class Strikes(Protocol):
    """`draw` returns a number from 0 to 1, 1 while nothing shall happen."""

    def draw(self) -> float: ...

    def note(self, fault: str) -> None: ...

    def stand_still(self) -> None:
        """Let the others go on."""
        ...

    def will_store(self) -> None: ...

    def has_stored(self) -> None: ...


class StruckSink:
    """At each call its worker may die, before or behind it, or stand still; or there is no answer, and the call may count."""

    def __init__(self, sink: RequestSink, strikes: Strikes) -> None:
        self._sink, self._strikes = sink, strikes
        self._is_dead = False

    def find(self) -> Progress | None:
        return self._struck("find", self._sink.find)

    def begin(self) -> Progress | None:
        return self._struck("begin", self._sink.begin)

    def store(self, requests: Sequence[Request], progress: Progress) -> None:
        def store() -> None:
            self._sink.store(requests, progress)
            self._strikes.has_stored()

        self._strikes.will_store()
        self._struck("store", store)

    def count_waiting(self) -> int | None:
        """Nothing happens at this call: it changes nothing, and nothing follows from it."""
        return self._sink.count_waiting()

    def end(self) -> None:
        if not self._is_dead:
            self._struck("end", self._sink.end)

    def _struck(self, what: str, call: Callable[[], _Found]) -> _Found:
        fault = int(self._strikes.draw() / _FAULT)
        if fault == 0:
            self._die(f"before {what}")
        if fault == 1:
            self._strikes.note(f"no answer to {what}")
            raise NoAnswer(what)
        if fault == 2:
            self._strikes.note(f"stands still at {what}")
            self._strikes.stand_still()
        found = call()
        if fault == 3:
            self._die(f"behind {what}")
        if fault == 4:
            self._strikes.note(f"the answer to {what} is lost")
            raise NoAnswer(what)
        return found

    def _die(self, where: str) -> None:
        self._is_dead = True
        raise Crash(where)
