"""The stream of completions: nothing is lost or told twice, whoever resumes, falls behind, or listens beside many others."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import httpx
import pytest
from harness.api_stage import serving
from harness.console_stage import http_settings, make_sources
from harness.counted_groups import GroupStage
from harness.waiting import async_wait_until, wait_until

from guardian.headers import GROUP_ID, GROUP_REPORT
from guardian.ports import TransportUnavailable
from notification_service.aggregation.completions import Completed, Place
from notification_service.console.access.identity import NoLogin
from notification_service.console.access.layer import Limits
from notification_service.console.application import make_application
from notification_service.console.context import Console
from notification_service.console.groups import Groups, describe_report
from notification_service.console.stores.feed import NoPlace, StoreFeed, place_of, place_text
from notification_service.console.stores.stream import stream

URL = "/api/v1/groups/events"
SECONDS = 60.0


class Log:
    """Completions in memory, on two partitions. Of partition 0 what is before `kept_from` is gone."""

    def __init__(self) -> None:
        self.records: dict[int, list[str]] = {0: [], 1: []}
        self.kept_from = 0
        self.is_away = False
        self.opened = 0

    def add(self, *groups: str, partition: int = 0) -> None:
        self.records[partition] += groups

    def open(self) -> Log:
        self.opened += 1
        return self

    def begins(self) -> Place:
        self._check()
        return {0: self.kept_from, 1: 0}

    def ends(self) -> Place:
        self._check()
        return {number: len(records) for number, records in self.records.items()}

    def read(self, at: Place, most: int) -> tuple[list[Completed], Place]:
        self._check()
        found: list[Completed] = []
        after = dict(at)
        for number, offset in at.items():
            for each, group in enumerate(self.records[number][offset : offset + most - len(found)], offset):
                headers = ((GROUP_ID, group.encode()), (GROUP_REPORT, b"1"))
                found.append(Completed(number, each, each + 1, headers))
                after[number] = each + 1
        return found, after

    def close(self) -> None:
        """Nothing to do."""

    def _check(self) -> None:
        if self.is_away:
            raise TransportUnavailable("the brokers do not answer")


class Client:
    """What a browser knows of the stream: the groups that it was told of, in order, and the id of the last event."""

    def __init__(self, last: str = "") -> None:
        self.last = last
        self.groups: list[str] = []
        self.others: list[tuple[str, object]] = []

    def take(self, text: str) -> None:
        for event in text.split("\n\n"):
            fields = dict(line.split(": ", 1) for line in event.splitlines() if ": " in line and not line.startswith(":"))
            self.last = fields.get("id", self.last)
            if fields.get("event") == "completed":
                self.groups.append(json.loads(fields["data"])["group"])
            elif "event" in fields:
                self.others.append((fields["event"], json.loads(fields["data"])))

    async def follow(self, feed: StoreFeed, groups: Groups, until: int) -> None:
        """Listen until so many groups were told of, as one connection does."""
        events = stream(feed, place_of(self.last) if self.last else None, None)
        async with asyncio.timeout(SECONDS):
            async for text in events:
                self.take(text)
                if len(self.groups) >= until and self.last:
                    break
        await _closed(events)


async def _closed(events: AsyncIterator[str]) -> None:
    await events.aclose()  # type: ignore[attr-defined]


@pytest.fixture
def log() -> Log:
    return Log()


@pytest.fixture
def ours(groups: GroupStage) -> Iterator[Groups]:
    made = Groups(groups, groups.clock)
    yield made
    made.close()


@pytest.fixture
def feed(log: Log, groups: GroupStage, monkeypatch: pytest.MonkeyPatch) -> Iterator[StoreFeed]:
    for name in ("_PAUSE_SECONDS", "_AGAIN_SECONDS"):
        monkeypatch.setattr(f"notification_service.console.stores.feed.{name}", 0.01)
    made = StoreFeed(log.open, groups.clock, describe_report, max_kept=100)
    yield made
    made.close()


def run(*clients: object) -> None:
    async def together() -> None:
        await asyncio.gather(*clients)  # type: ignore[call-overload]

    asyncio.run(together())


def test_a_place_is_read_as_it_was_written_and_nothing_else_is_one() -> None:
    assert place_of(place_text({3: 7, 0: 12})) == {0: 12, 3: 7}
    for text in ("", "1", "0:", "0:1,", "0:-1", "0:1,0:2", "0:1\n", "٣:١", "0:1" * 9_000, "0:9999999999999999999"):
        with pytest.raises(NoPlace):
            place_of(text)


def test_who_begins_without_a_place_is_told_what_comes_from_then_on(feed: StoreFeed, log: Log, ours: Groups) -> None:
    log.add("before")
    client = Client()

    async def both() -> None:
        await client.follow(feed, ours, 0)
        log.add("a", "b", partition=1)
        await client.follow(feed, ours, 2)

    run(both())
    assert client.groups == ["a", "b"]


@pytest.mark.parametrize("kept", [100, 3])
def test_who_resumes_again_and_again_is_told_all_once(log: Log, groups: GroupStage, ours: Groups, kept: int) -> None:
    """Also if what is kept in memory is not enough: then the log is read again."""
    feed = StoreFeed(log.open, groups.clock, describe_report, max_kept=kept)
    client = Client("0:0,1:0")

    async def again_and_again() -> None:
        for number in range(10):
            for partition in (0, 1):
                log.add(*(f"{partition}-{number}-{each}" for each in range(7)), partition=partition)
            await client.follow(feed, ours, (number + 1) * 9)
        while len(client.groups) < 140:  # With little kept it is cut off now and then.
            await client.follow(feed, ours, 140)

    run(again_and_again())
    feed.close()
    assert len(client.groups) == 140
    assert set(client.groups) == {*log.records[0], *log.records[1]}
    for partition in (0, 1):
        assert [each for each in client.groups if each.startswith(f"{partition}-")] == log.records[partition]


class LongLog(Log):
    """Whose records are a quarter of what a listener takes at once, and more."""

    def read(self, at: Place, most: int) -> tuple[list[Completed], Place]:
        found, after = super().read(at, most)
        return [each._replace(value=bytes(70_000)) for each in found], after


@pytest.mark.parametrize("kept", [100_000_000, 200_000, 1])
def test_long_values_are_kept_and_sent_in_portions_and_none_is_missed(groups: GroupStage, ours: Groups, kept: int) -> None:
    log = LongLog()
    feed = StoreFeed(log.open, groups.clock, describe_report, max_kept_bytes=kept)
    client = Client("0:0,1:0")
    for partition in (0, 1):
        log.add(*(f"{partition}-{each}" for each in range(20)), partition=partition)

    async def again_and_again() -> None:
        while len(client.groups) < 40:
            await client.follow(feed, ours, 40)

    run(again_and_again())
    assert feed._kept_bytes <= kept
    feed.close()
    for partition in (0, 1):
        assert [each for each in client.groups if each.startswith(f"{partition}-")] == log.records[partition]
    portion = feed.read_again({0: 0, 1: 0}, {0: 20, 1: 20})
    assert len(portion.records) == 3
    feed.close()


def test_a_stream_ends_after_an_hour_and_its_client_continues(
    feed: StoreFeed, log: Log, ours: Groups, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So a login that was taken away ends, too."""
    client = Client("0:0,1:0")
    log.add(*(f"g{each}" for each in range(1_000)))
    monkeypatch.setattr("notification_service.console.stores.stream._LISTEN_SECONDS", -1.0)
    run(client.follow(feed, ours, 1_000))
    assert client.groups == []
    monkeypatch.undo()
    run(client.follow(feed, ours, 1_000))
    assert client.groups == log.records[0]


def test_a_listener_resumes_at_another_console(log: Log, groups: GroupStage, ours: Groups) -> None:
    """The other one has read the partitions in another order: an id is no number in one console's order."""
    client = Client("0:0,1:0")
    log.add("a", "b", "c")
    log.add("x", "y", partition=1)
    client.last = "0:1,1:2"
    other = StoreFeed(log.open, groups.clock, describe_report)
    run(client.follow(other, ours, 2))
    other.close()
    assert client.groups == ["b", "c"]


def test_many_listeners_are_told_the_same_and_the_log_is_read_once(feed: StoreFeed, log: Log, ours: Groups) -> None:
    clients = [Client() for _ in range(60)]

    async def all_of_them() -> None:
        listening = [asyncio.create_task(each.follow(feed, ours, 20)) for each in clients]
        await async_wait_until(lambda: all(each.last for each in clients), "all listen")
        log.add(*(f"g{number}" for number in range(20)))
        await asyncio.gather(*listening)

    run(all_of_them())
    assert {tuple(each.groups) for each in clients} == {tuple(f"g{number}" for number in range(20))}
    assert log.opened == 1


def test_who_falls_behind_is_cut_off_and_resumes_without_loss(feed: StoreFeed, log: Log, ours: Groups) -> None:
    client = Client()

    async def slow() -> None:
        await client.follow(feed, ours, 0)
        events = stream(feed, place_of(client.last), None)
        client.take(await anext(events))
        client.take(await anext(events))  # Since then it takes nothing.
        other = Client(client.last)
        for number in range(50):
            log.add(*(f"g{number}-{each}" for each in range(10)))
        await other.follow(feed, ours, 500)
        async with asyncio.timeout(SECONDS):
            async for text in events:  # It ends.
                client.take(text)
        assert len(client.groups) < 500
        await client.follow(feed, ours, 500)

    run(slow())
    assert client.groups == log.records[0]


def test_what_is_gone_is_told_and_the_rest_follows(feed: StoreFeed, log: Log, ours: Groups) -> None:
    log.add(*(f"g{number}" for number in range(10)))
    log.kept_from = 6
    client = Client("0:2,1:0")
    run(client.follow(feed, ours, 4))
    assert client.groups == ["g6", "g7", "g8", "g9"]
    (gap,) = (data for name, data in client.others if name == "gap")
    assert gap == {"gap": "partition 0 begins at offset 6: what was before is not there any more"}


def test_a_log_that_was_made_anew_is_told(feed: StoreFeed, log: Log, ours: Groups) -> None:
    client = Client("0:50,1:0")

    async def both() -> None:
        listening = asyncio.create_task(client.follow(feed, ours, 1))
        await async_wait_until(lambda: "gap" in dict(client.others), "the gap is told")
        log.add("new")
        await listening

    run(both())
    assert client.groups == ["new"]
    assert client.last == "0:1,1:0"


def test_brokers_that_are_away_are_told_and_nothing_is_lost_meanwhile(feed: StoreFeed, log: Log, ours: Groups) -> None:
    client = Client()

    async def both() -> None:
        await client.follow(feed, ours, 0)
        log.is_away = True
        listening = asyncio.create_task(client.follow(feed, ours, 1))
        await async_wait_until(lambda: any(name == "problem" for name, _ in client.others), "the problem is told")
        log.add("meanwhile")
        log.is_away = False
        await listening

    run(both())
    assert client.groups == ["meanwhile"]
    (problem, *_) = (data for name, data in client.others if name == "problem")
    assert problem == {"problem": "the brokers do not answer", "since": "2026-03-28T23:20:00.000Z"}


def test_the_end_of_the_console_ends_all_streams(feed: StoreFeed, log: Log, ours: Groups) -> None:
    del log
    clients = [Client() for _ in range(5)]

    async def all_of_them() -> None:
        listening = [asyncio.create_task(each.follow(feed, ours, 1)) for each in clients]
        await async_wait_until(lambda: all(each.last for each in clients), "all listen")
        feed.end()
        async with asyncio.timeout(SECONDS):
            await asyncio.gather(*listening)

    run(all_of_them())


def test_without_a_listener_nothing_is_read_after_a_while(
    feed: StoreFeed, log: Log, ours: Groups, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = Client()
    run(client.follow(feed, ours, 0))
    assert feed._thread is not None, "it may come back"
    monkeypatch.setattr("notification_service.console.stores.feed._LINGER_SECONDS", 0.0)

    async def once() -> None:
        await client.follow(feed, ours, 0)
        await async_wait_until(lambda: feed._thread is None, "the log is not read any more")

    run(once())
    log.is_away = True
    assert feed.problem is None


# Over HTTP, and real files


@pytest.fixture
def console(groups: GroupStage, tmp_path: Path) -> Iterator[Console]:
    sources = make_sources(tmp_path, clock=groups.clock)._replace(groups=groups, find_aggregation=groups.find_status)
    made = Console(http_settings(tmp_path), sources)
    yield made
    made.close()


@pytest.fixture
def url(console: Console) -> Iterator[str]:
    with serving(make_application(console, NoLogin(), Limits(requests_per_second=1_000, requests_at_once=1_000))) as address:
        yield address
        console.end_streams()


def listen(url: str, client: Client, until: int, **headers: str) -> None:
    """Listen by HTTP until so many groups were told of."""
    given = {**({"Last-Event-ID": client.last} if client.last else {}), **headers}
    with httpx.stream("GET", f"{url}{URL}", headers=given, timeout=SECONDS, trust_env=False) as answer:
        assert answer.status_code == 200, answer.read()
        assert answer.headers["content-type"].startswith("text/event-stream")
        text = ""
        for piece in answer.iter_text():
            text += piece
            *events, text = text.split("\n\n")
            for each in events:
                client.take(f"{each}\n\n")
                if client.last and len(client.groups) >= until:
                    return


def complete(groups: GroupStage, *names: str) -> None:
    for name in names:
        groups.status(name, f"{name}-1", total=1)
    groups.count()


@pytest.mark.slow
def test_over_files_each_completion_is_told_once_with_its_byte_as_the_place(url: str, groups: GroupStage) -> None:
    file = groups.directory / "out" / "completions.jsonl"
    client = Client()
    listen(url, client, 0)
    assert client.last == "0:0"
    for number in range(5):
        complete(groups, f"A{number}", f"B{number}")
        listen(url, client, 2 * number + 1)  # In between it is not told of the second.
    listen(url, client, 10)
    assert client.groups == [f"{each}{number}" for number in range(5) for each in "AB"]
    assert client.last == f"0:{file.stat().st_size}"
    with file.open("ab") as unended:
        unended.write(b'{"value": ')
    again = Client("0:0")
    listen(url, again, 10)
    assert again.groups == client.groups


@pytest.mark.slow
def test_a_bad_place_and_too_many_listeners_are_refused(url: str, console: Console) -> None:
    assert httpx.get(f"{url}{URL}?after=x", trust_env=False, timeout=SECONDS).status_code == 400
    assert httpx.get(f"{url}{URL}", headers={"last-event-id": "1-2"}, trust_env=False, timeout=SECONDS).status_code == 400
    console.listening.count = 100
    refused = httpx.get(f"{url}{URL}", trust_env=False, timeout=SECONDS)
    assert refused.status_code == 503
    assert "too many pages are open" in refused.json()["error"]
    console.listening.count = 0


@pytest.mark.slow
def test_a_connection_that_ends_is_not_counted_any_more(url: str, console: Console) -> None:
    client = Client()
    for _ in range(3):
        listen(url, client, 0)
    wait_until(lambda: console.listening.count == 0, "none is counted")


@pytest.mark.slow
def test_a_listener_that_asks_for_progress_is_told_when_counts_have_changed(
    url: str, console: Console, groups: GroupStage
) -> None:
    assert console.groups is not None
    client = Client()
    with httpx.stream("GET", f"{url}{URL}?progress=true", timeout=SECONDS, trust_env=False) as answer:
        for piece in answer.iter_text():
            client.take(piece)
            if client.last and not client.others[1:]:
                groups.status("OPEN", "u1", "ACSP")
                groups.count()
                console.groups.watch.refresh()
            if ("progress", None) in client.others:
                return
    raise AssertionError("nothing was told")


@pytest.mark.slow
def test_a_browser_that_reads_nothing_is_cut_off_and_its_place_is_free(
    url: str, console: Console, groups: GroupStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its connection takes what the kernel holds for it, and no more; then it has a while."""
    monkeypatch.setattr("notification_service.console.stores.stream._SEND_SECONDS", 0.3)
    complete(groups, "A")
    file = groups.directory / "out" / "completions.jsonl"
    line = file.read_bytes()
    file.write_bytes(line * 60_000)
    host, _, port = url.removeprefix("http://").partition(":")
    with socket.create_connection((host, int(port))) as stalled:
        stalled.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        stalled.sendall(f"GET {URL}?after=0:0 HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n".encode())
        wait_until(lambda: b"retry: " in stalled.recv(4_096, socket.MSG_PEEK), "it listens, and is sent a first event")
        wait_until(lambda: console.listening.count == 0, "it is cut off")
