"""A release of the lookups stays open until the last call that reads it has ended, however it ends."""

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Iterator
from pathlib import Path
from threading import Event as Signal
from threading import Thread
from typing import Any

import pytest
from harness.calling import users_calls
from harness.driving import wire
from harness.published_lookups import NOW, publish, shaped
from harness.waiting import DEADLINE_SECONDS, async_wait_until, async_yield

from notification_service.api import Enrichment, Message, PaymentData
from notification_service.events.format import DecodingSettings
from notification_service.lookups.directory import LookupsDirectory
from notification_service.lookups.follower import Follower
from notification_service.lookups.release import Release, open_release
from notification_service.lookups.shapes import ANY, PROFILES
from notification_service.payments.decoding import EnvelopeDecoder
from notification_service.payments.enrichment import Lookups
from notification_service.payments.envelope import DataEnvelope
from notification_service.payments.foreign_handler import ForeignHandler
from notification_service.wiring.handlers import EnrichedHandler
from resequencer.handler import UNMARKED, Handled
from resequencer.record import Origin, Partition, Record

Begun = Coroutine[Any, Any, Handled]


class Desks:
    """Reads the lookups before and after it waits: for the gate in a loop, or in a thread for the signal."""

    def __init__(self) -> None:
        self.gate, self.signal, self.waiting = asyncio.Event(), Signal(), 0

    async def handle(self, *given: Any) -> list[Message]:
        before = find(given[-1])
        self.waiting += 1
        await self.gate.wait()
        return [Message(0, "ACSC", before + find(given[-1]))]


class DesksInThread(Desks):
    def handle(self, *given: Any) -> Iterable[Message]:  # type: ignore[override]
        before = find(given[-1])
        self.waiting += 1
        assert self.signal.wait(DEADLINE_SECONDS)
        yield Message(0, "ACSC", before + find(given[-1]))


def find(lookups: Enrichment) -> bytes:
    found = lookups.find("desks", "k")
    assert found is not None
    return str(found[0]).encode()


@pytest.fixture
def closed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The versions of the releases that were closed."""
    closed: list[str] = []
    close = Release.close

    def noting(release: Release) -> None:
        closed.append(release.version)
        close(release)

    monkeypatch.setattr(Release, "close", noting)
    return closed


@pytest.fixture
def directory(tmp_path: Path) -> LookupsDirectory:
    return LookupsDirectory(tmp_path)


@pytest.fixture
def release(directory: LookupsDirectory) -> Callable[[], None]:
    """Publish releases one, two, … ."""
    names = iter(("one", "two", "three"))

    def release() -> None:
        name = next(names)
        tables = {"desks": shaped({("k",): [name]}), PROFILES: shaped({(ANY, "Flow"): ["10", "5000"]})}
        publish(directory, tables, now=NOW + len(name))

    release()
    return release


Make = Callable[[Desks], EnrichedHandler]


@pytest.fixture
def make(directory: LookupsDirectory, release: Callable[[], None]) -> Iterator[Make]:
    """Make the handler around the user's with the first release."""
    calls, made = users_calls(1), list[EnrichedHandler]()

    def make(users: Desks) -> EnrichedHandler:
        pointer = directory.get_current()
        opened = open_release(directory, pointer)
        handler = ForeignHandler(users, "own:Own", Lookups(opened), 1_000, find_way=calls.find_way)
        made.append(EnrichedHandler(handler, opened, Follower(directory, pointer, 100)))
        return made[-1]

    yield make
    calls.threads.shutdown()
    for each in made:
        each.close()


def begin(handler: EnrichedHandler) -> Begun:
    assert handler.call is not None
    return handler.call(ENVELOPE, PaymentData(), UNMARKED, 0)


def _envelope() -> DataEnvelope:
    value = wire("uow-1", "Flow", 1, "e-1", processObjects=[{"uniqueId": "e-1", "object": {"eventName": "One"}}])
    decoded = EnvelopeDecoder(DecodingSettings(needs_sequence=True)).decode(Record(Origin(Partition("T", 0), 7), value))
    assert isinstance(decoded, DataEnvelope)
    return decoded


ENVELOPE = _envelope()


def switch(handler: EnrichedHandler, release: Callable[[], None]) -> None:
    release()
    handler._follower.look()
    handler.take_up()


@pytest.mark.parametrize("users", [Desks, DesksInThread])
@pytest.mark.parametrize("is_cancelled", [False, True])
def test_a_call_has_the_release_in_which_it_began_until_it_ends(
    users: type[Desks], is_cancelled: bool, make: Make, release: Callable[[], None], closed: list[str]
) -> None:
    async def run() -> None:
        own = users()
        handler = make(own)
        first = handler.version
        call = asyncio.create_task(begin(handler))
        await async_wait_until(lambda: own.waiting, "it waits")
        switch(handler, release)
        assert (handler.version != first, closed) == (True, [])
        if is_cancelled:
            call.cancel()
            await async_yield()
            assert call.done() is False or users is Desks
            handler.take_up()
            assert closed == ([first] if call.done() else [])
        own.gate.set()
        own.signal.set()
        (outcome,) = await asyncio.gather(call, return_exceptions=True)
        if not is_cancelled:
            assert isinstance(outcome, Handled)
            (made,) = outcome.notifications
            assert (made.value, dict(made.headers)["lookups-version"]) == (b"oneone", str(first).encode())
        handler.take_up()
        assert closed == [first]
        (made,) = (await begin(handler)).notifications
        assert made.value == b"twotwo"

    asyncio.run(run())


def test_releases_that_follow_each_other_are_closed_as_their_calls_end(
    make: Make, release: Callable[[], None], closed: list[str]
) -> None:
    async def run() -> None:
        own = Desks()
        handler, calls, versions = make(own), list[asyncio.Task[Handled]](), list[str | None]()
        for _ in range(2):
            calls.append(asyncio.create_task(begin(handler)))
            versions.append(handler.version)
            await async_wait_until(lambda: own.waiting == len(calls), "it waits")
            switch(handler, release)
        assert closed == []
        for each, version in zip(reversed(calls), reversed(versions), strict=True):
            each.cancel()
            await asyncio.wait([each])
            handler.take_up()
            assert closed[-1] == version
        assert len(closed) == 2

    asyncio.run(run())


def test_a_call_that_was_never_begun_keeps_no_release_open(make: Make, release: Callable[[], None], closed: list[str]) -> None:
    handler = make(Desks())
    call = begin(handler)
    switch(handler, release)
    assert closed == []
    call.close()
    handler.take_up()
    assert len(closed) == 1


def test_what_a_call_still_reads_is_not_closed_at_the_end(make: Make, closed: list[str]) -> None:
    async def run() -> None:
        own = DesksInThread()
        handler = make(own)
        call = asyncio.create_task(begin(handler))
        await async_wait_until(lambda: own.waiting, "it waits")
        handler.close()
        assert closed == []
        own.signal.set()
        (made,) = (await call).notifications
        assert made.value == b"oneone"
        handler.close()
        assert set(closed) == {handler.version}

    asyncio.run(run())


def test_without_calls_a_release_is_closed_at_once(
    directory: LookupsDirectory, release: Callable[[], None], closed: list[str]
) -> None:
    pointer = directory.get_current()
    opened = open_release(directory, pointer)
    handler = EnrichedHandler(
        ForeignHandler(DesksInThread(), "own:Own", Lookups(opened), 1_000), opened, Follower(directory, pointer, 100)
    )
    assert handler.call is None
    switch(handler, release)
    assert closed == [opened.version]
    handler.close()
    assert closed == [opened.version, handler.version]


def test_the_lookups_of_calls_are_read_by_one_thread_at_a_time(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """LMDB does not allow two readers in one transaction. The worker's thread reads the profiles while a call reads a desk."""
    own = DesksInThread()
    own.signal.set()
    handler, read, order = make(own), Release.find, list[str]()
    has_entered = Signal()
    second = Thread(target=lambda: order.append(f"profile {handler.find_lateness_ms(None, 'Flow')}"))

    def watched(release: Release, table: str, key: bytes) -> bytes | None:
        if table == PROFILES:
            has_entered.set()
        elif second.ident is None:
            second.start()
            assert not has_entered.wait(0.1)
            order.append("desk")
        return read(release, table, key)

    monkeypatch.setattr(Release, "find", watched)
    asyncio.run(begin(handler))
    second.join(DEADLINE_SECONDS)
    assert order == ["desk", "profile 5000"]
