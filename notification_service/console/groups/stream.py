"""Streams completions as server-sent events, each with the place behind it: `Last-Event-ID` goes on without loss or doubles.

    id: 0:12,1:7
    event: completed
    data: {"group": "…", "report": 1, "message_id": "…", "status": "ACCC", …}

`begin` has the place at which a stream begins, `gap` says what is gone, `problem` that the completions cannot be read and since
when, `progress`, where it is asked for, that counts of groups have changed. A comment comes when there was nothing for a while.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from itertools import count
from typing import Any

import msgspec
from starlette.responses import StreamingResponse
from starlette.types import Message, Send

from guardian import headers as names
from notification_service.aggregation.completions import Completed, Place
from notification_service.console.groups.feed import CompletionFeed, Listener, Portion
from notification_service.console.groups.watch import GroupsWatch, place_text
from resequencer.clock import instant_text
from resequencer.errors import ResequencerError
from resequencer.printable import printable

_log = logging.getLogger("resequencer.console")
_AT_ONCE = 200
_HEARTBEAT_SECONDS = 15.0
_AGAIN_MS = 2_000
_SEND_SECONDS = 20.0
"""How long one piece may take. A browser that takes nothing for so long is cut off."""


class CompletedEvent(msgspec.Struct, frozen=True):
    """A report on a group was made; its `report` is its number, from 1. `message_id` is its GrpHdr/MsgId.

    `status` is its GrpSts, `missing` how many payments have no final status, `total` the NbOfTxs. Where `possible_duplicate` is
    set the same report may have been told before: values in files were lost.
    """

    group: str
    report: int
    message_id: str
    status: str | None
    total: int | None
    missing: int
    amended: bool
    closed_by: str | None
    possible_duplicate: bool


class EventStream(StreamingResponse):
    """Ends if its client takes nothing for a while."""

    media_type = "text/event-stream"

    async def stream_response(self, send: Send) -> None:
        async def send_in_time(message: Message) -> None:
            await asyncio.wait_for(send(message), _SEND_SECONDS)

        try:
            await super().stream_response(send_in_time)
        except TimeoutError:
            _log.info("a browser that took no events for %.0f s was cut off; it resumes where it was", _SEND_SECONDS)


async def stream(feed: CompletionFeed, watch: GroupsWatch, after: Place | None, *, with_progress: bool) -> AsyncIterator[str]:
    """Yield the events behind a place, or from now on, until the client is gone, falls behind, or the feed ends."""
    listener = feed.listen()
    try:
        yield f"retry: {_AGAIN_MS}\n\n"
        telling = _Telling(feed, listener, after)
        async for text in telling.events(watch if with_progress else None):
            yield text
    finally:
        feed.leave(listener)


class _Telling:
    """What one listener was told."""

    def __init__(self, feed: CompletionFeed, listener: Listener, after: Place | None) -> None:
        self._feed, self._listener = feed, listener
        self._after = after
        self._at: dict[int, int] | None = None
        self._until: Place | None = None
        self._number = 0
        self._problem: object = None
        self._changes = feed.changes

    async def events(self, watch: GroupsWatch | None) -> AsyncIterator[str]:
        for _ in count():
            self._listener.news.clear()
            if self._feed.is_ended:
                return
            if watch is not None:
                await asyncio.to_thread(watch.look)
            said = False
            async for text in self._news(is_progress_told=watch is not None):
                said = True
                yield text
            if self._is_behind:
                return
            if said and self._has_more:
                continue
            if not await self._wait():
                yield ": nothing new\n\n"

    @property
    def _has_more(self) -> bool:
        return self._until is not None or bool(self._feed.take(self._number, 1))

    @property
    def _is_behind(self) -> bool:
        is_behind = self._at is not None and self._feed.take(self._number, 1) is None
        if is_behind:
            _log.info("a browser fell behind and was cut off; it resumes where it was")
        return is_behind

    async def _wait(self) -> bool:
        try:
            await asyncio.wait_for(self._listener.news.wait(), _HEARTBEAT_SECONDS)
        except TimeoutError:
            return False
        return True

    async def _news(self, *, is_progress_told: bool) -> AsyncIterator[str]:
        if self._feed.problem != self._problem:
            self._problem = problem = self._feed.problem
            told = None if problem is None else {"problem": problem.text, "since": instant_text(problem.since)}
            yield _event("problem", told)
        if self._at is None and (joined := self._feed.join(self._after)) is not None:
            self._number, self._until = joined.number, joined.until
            self._at = dict(joined.at)
            yield _event("begin", None, self._at)
        if self._at is not None and self._until is not None:
            async for text in self._again(self._until):
                yield text
        elif self._at is not None and (kept := self._feed.take(self._number, _AT_ONCE)):
            self._number += len(kept)
            if text := self._told(kept):
                yield text
        if is_progress_told and self._feed.changes != self._changes:
            self._changes = self._feed.changes
            yield _event("progress", None)

    async def _again(self, until: Place) -> AsyncIterator[str]:
        assert self._at is not None
        try:
            portion: Portion = await asyncio.to_thread(self._feed.read_again, self._at, until)
        except ResequencerError as error:
            yield _event("problem", {"problem": printable(str(error)), "since": None})
            await self._wait()
            return
        self._at = dict(portion.start)
        gaps = "".join(_event("gap", {"gap": each}, self._at) for each in portion.gaps)
        text = self._told(portion.records)
        self._at = dict(portion.at)
        if all(self._at[number] >= offset for number, offset in until.items()):
            self._until = None
        if text or gaps:
            yield gaps + text

    def _told(self, records: Sequence[Completed]) -> str:
        assert self._at is not None
        texts = []
        for each in records:
            if each.offset < self._at.get(each.partition, 0):
                continue  # It was told before the listener resumed.
            self._at[each.partition] = each.next_offset
            if (event := _completed(each)) is not None:
                texts.append(_event("completed", event, self._at))
        return "".join(texts)


def _completed(record: Completed) -> CompletedEvent | None:
    texts = names.texts_of(record.headers)
    group, report = texts.get(names.GROUP_ID), texts.get(names.GROUP_REPORT, "")
    if group is None or not report.isdigit():
        return None  # Another program wrote it.
    total, missing = texts.get(names.GROUP_TOTAL, ""), texts.get(names.INCOMPLETE, "")
    return CompletedEvent(
        group,
        int(report),
        texts.get(names.NOTIFICATION_ID, ""),
        texts.get(names.GROUP_STATUS),
        int(total) if total.isdigit() else None,
        int(missing) if missing.isdigit() else 0,
        names.AMENDED in texts,
        texts.get(names.CLOSED_BY),
        names.POSSIBLE_DUPLICATE in texts,
    )


def _event(name: str, data: Any, at: Place | None = None) -> str:
    """Return an event. JSON has no line breaks."""
    identified = f"id: {place_text(at)}\n" if at else ""
    return f"{identified}event: {name}\ndata: {msgspec.json.encode(data).decode()}\n\n"
