"""Delivers what one topic holds: reads it as a member of a consumer group, has the calls made, and commits positions."""

import asyncio
import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from time import monotonic
from typing import TypeVar

from guardian.ports import (
    NotPublished,
    OutputRecord,
    PartitionOutput,
    Polled,
    PublishRefused,
    TransportRefused,
    TransportUnavailable,
    TransportWithheld,
)
from notification_service.delivery.caller import Caller
from notification_service.delivery.direct.core.decision import OpenRecord, Stage
from notification_service.delivery.direct.core.partition import AT_ONCE, DirectPartition, partitions_to_pause
from notification_service.delivery.direct.order_executor import OrderReading
from notification_service.delivery.direct.owned import Owned, StageClients, Takeover
from notification_service.delivery.direct.stage_calls import CallSlots, StageCalls
from resequencer.clock import SteadyClock
from resequencer.record import Partition, Record

_LOG = logging.getLogger("resequencer.delivery")
_LATER_SECONDS, _REFUSED_SECONDS = 0.2, 5.0


class Holdings:
    """`owned` are read and delivered. `before` were, until the clients had to be made again; their calls under way continue.

    `refused` says of partitions why they cannot be taken over until a person acts.
    """

    def __init__(self) -> None:
        self.owned: dict[Partition, Owned] = {}
        self.before: dict[Partition, Owned] = {}
        self.refused: dict[Partition, str] = {}
        self._tries_at: dict[Partition, float] = {}

    def follow(self, assigned: Collection[Partition]) -> Sequence[Partition]:
        """Drop what is not assigned any more; return what is to be taken over now."""
        for gone in self.owned.keys() - set(assigned):
            self.owned.pop(gone).give_up()
        # New clients have no partitions before their first poll.
        for gone in self.before.keys() - set(assigned) if assigned else ():
            self.before.pop(gone).give_up()
        self.refused = {each: why for each, why in self.refused.items() if each in assigned}
        now = monotonic()
        return [each for each in sorted(assigned) if each not in self.owned and now >= self._tries_at.get(each, 0.0)]

    @contextmanager
    def taking(self, partition: Partition) -> Iterator[None]:
        """Note why the partition could not be taken over. It is tried again later, and the others are read meanwhile."""
        try:
            yield
        except TransportUnavailable as error:
            # Of one partition the last transaction may be undecided, while the others can be read.
            _LOG.info("%s is taken over a little later: %s", partition, error)
            self._tries_at[partition] = monotonic() + _LATER_SECONDS
        except TransportRefused as error:
            if self.refused.get(partition) != str(error):
                _LOG.error("%s", error)
            self.refused[partition] = str(error)
            self._tries_at[partition] = monotonic() + _REFUSED_SECONDS

    def add(self, owned: Owned) -> None:
        """Note that a partition was taken over."""
        partition = owned.state.partition
        self.owned[partition] = owned
        self.refused.pop(partition, None)
        before = self.before.pop(partition, owned)
        if before is not owned:
            before.give_up()

    def set_aside(self) -> None:
        """Note that the clients are made again: nothing is owned until it is taken over again."""
        self.before |= self.owned
        self.owned.clear()

    def give_up(self) -> "list[asyncio.Task[None]]":
        """Give everything up; return the calls that were cancelled."""
        calls = [call for each in (*self.owned.values(), *self.before.values()) for call in each.give_up()]
        self.owned.clear()
        self.before.clear()
        return calls


_SECONDS = 0.2
_BYTES = 8 << 20
_WRITING_SHARE = 10


class Commits:
    """An attempt whose outcome is unknown is made again unchanged. `owned` are the partitions of this worker, as they change.

    `passed` returns the milliseconds that have passed since some instant, with those in which the machine was suspended.
    """

    def __init__(self, owned: Mapping[Partition, Owned], passed: Callable[[], int]) -> None:
        self._owned, self._passed = owned, passed
        self._attempt: list[tuple[Owned, PartitionOutput]] = []
        self._due_at = 0.0
        self._waits_since: int | None = None
        self.is_refused = False
        """Whether the last commit was refused."""

    @property
    def are_due(self) -> bool:
        return monotonic() > self._due_at

    @property
    def has_more(self) -> bool:
        """Whether something is not committed."""
        return bool(self._attempt) or any(each.state.has_news for each in self._owned.values())

    def find_wait_ms(self) -> int:
        """Return for how long what is done has not been committed; 0 if all is."""
        return 0 if self._waits_since is None else self._passed() - self._waits_since

    def next(self) -> list[PartitionOutput]:
        """Return what is to be published now, in one transaction. Call `published` when it was, or `withdraw` if nothing was."""
        self._attempt = [(owned, output) for owned, output in self._attempt if self._is_ours(owned)]
        if not self._attempt:
            self._attempt = self._made()
        if not self._attempt:
            # Nothing could be refused again: what was refused is another worker's by now, or was taken over again.
            self._waits_since, self.is_refused = None, self.is_refused and not self._owned
        elif self._waits_since is None:
            self._waits_since = self._passed()
        return [output for _, output in self._attempt]

    def published(self) -> None:
        """Note that the attempt was published."""
        for owned, output in self._attempt:
            owned.state.published(output)
            owned.position, owned.attempted = output.position, None
        self._attempt, self._waits_since, self.is_refused = [], None, False

    def withdraw(self) -> None:
        """Note that nothing of the attempt was published: it is made again."""
        for owned, _ in self._attempt:
            owned.state.has_news, owned.attempted = True, None
        self._attempt = []

    def forget(self) -> None:
        """Forget the attempt: the next owner of each partition finds out what was published."""
        self._attempt = []

    def _made(self) -> list[tuple[Owned, PartitionOutput]]:
        attempt: list[tuple[Owned, PartitionOutput]] = []
        taken, begun = 0, monotonic()
        for owned in self._owned.values():
            if owned.state.has_news and taken < _BYTES:
                taken += owned.state.leaving_bytes
                owned.attempted = owned.state.output()
                attempt.append((owned, owned.attempted))
        # Long lists of what is done take long to write: the larger part of the time remains for calls.
        self._due_at = monotonic() + max(_SECONDS, _WRITING_SHARE * (monotonic() - begun))
        return attempt

    def _is_ours(self, owned: Owned) -> bool:
        return self._owned.get(owned.state.partition) is owned


_Found = TypeVar("_Found")

_LOOK_SECONDS = 0.2
_ORDERS_SECONDS = 1.0
_BUSY_POLL_MS, _IDLE_POLL_MS = 20, 500
_PAUSE_SECONDS = 1.0
_DRAIN_SECONDS, _LAST_COMMIT_SECONDS = 12.0, 4.0
"""Less than a delivery worker has for the end of all that it does; the second is kept for the last commit."""


class StageConsumer:
    """All state is used from the event loop alone. The transport is used from a thread of its own, one call at a time.

    After a crash, records are called again of which no position says that they are done, under the same idempotency key. These
    are few: while nothing is committed, or the brokers do not answer, no more calls begin.
    """

    def __init__(
        self, stage: Stage, open_clients: Callable[[], StageClients], caller: Caller, slots: CallSlots, clock: SteadyClock
    ) -> None:
        self.stage = stage
        self._open_clients = open_clients
        self._clients = open_clients()
        self._slots = slots
        self._holdings = Holdings()
        self._owned = self._holdings.owned
        self._commits = Commits(self._owned, clock.passed)
        self._calls = StageCalls(stage, caller, slots, clock, self._owned, self._may_call)
        self._takeover = Takeover(stage, slots.gate, clock, self._calls.dead_letter)
        self._passed = clock.passed  # While the machine is suspended, another worker gets the partitions.
        self._polled_at = self._passed()
        self._orders_at = 0.0
        self._order_reading = OrderReading()
        self._thread = ThreadPoolExecutor(1, f"delivery-{stage.group}")
        self._is_stopping = False
        self.problem: str | None = None
        """Why the topic is not read, or what is done is not committed; None while all is well."""
        self.notes: tuple[str, ...] = ()
        """Sentences of the transport about what does not stop it."""
        slots.join(self._calls)

    @property
    def partitions(self) -> list[tuple[DirectPartition, int]]:
        """The partitions of this worker, each with the end of its log as last seen."""
        return [(each.state, each.log_end) for each in self._owned.values()]

    @property
    def refused(self) -> Mapping[Partition, str]:
        """Partitions that cannot be read until a person acts."""
        return self._holdings.refused

    async def run(self) -> None:
        """Deliver until `stop`; then let the calls under way end, and commit what is done."""
        try:
            while not self._is_stopping:
                await self._guarded(self._turn)
                if self._calls.failure is not None:
                    raise self._calls.failure
            await self._drain()
        finally:
            self.stop()
            await self._close()
            self._thread.shutdown(wait=False)

    def retry_first(self) -> None:
        """Let the first blocked record of each partition be called next."""
        for each in self._owned.values():
            each.state.retry_first(self._slots.now())

    def stop(self) -> None:
        """Begin no more calls."""
        self._is_stopping = True
        self._slots.leave(self._calls)

    def _may_call(self) -> bool:
        """Return whether the partitions are certainly this worker's, and what is called will be committed soon."""
        longest_ms = self._clients.session_ms
        if self._is_stopping or self._commits.is_refused or self._commits.find_wait_ms() > longest_ms:
            return False
        return self._passed() - self._polled_at < longest_ms

    async def _guarded(self, turn: Callable[[], object]) -> None:
        """Take a turn. What does not answer is asked again after a pause."""
        try:
            await turn()  # type: ignore[misc]
        except PublishRefused as error:
            _LOG.info("%s: %s", self.stage.topic, error)  # After the next poll it is known which partitions remain.
        except (TransportUnavailable, TransportRefused) as error:
            if isinstance(error, NotPublished):
                self._commits.withdraw()
            if self.problem != str(error):
                _LOG.warning("delivery of topic %s has stopped: %s", self.stage.topic, error)
            self.problem = str(error)
            if isinstance(error, TransportRefused) and not isinstance(error, TransportWithheld):
                await self._open_anew()
            await asyncio.sleep(_PAUSE_SECONDS)
        else:
            if self.problem is not None:
                _LOG.info("%s is delivered from again", self.stage.topic)
                self.problem = None

    async def _open_anew(self) -> None:
        """Replace the clients, which cannot be used any more. What an operator repairs is found by new ones.

        Calls under way continue, and so do waits and attempts, if the partitions come back before another worker has had them.
        """
        self._holdings.set_aside()
        self._commits.forget()
        await self._close_clients()
        self._clients = self._open_clients()

    async def _close(self) -> None:
        """Give up all calls and partitions, and close the clients."""
        await asyncio.gather(*self._holdings.give_up(), return_exceptions=True)
        await self._close_clients()

    async def _close_clients(self) -> None:
        await self._in_thread(self._clients.transport.close)
        if self._clients.orders is not None:
            await self._in_thread(self._clients.orders.close)

    async def _turn(self) -> None:
        await self._follow()
        polled = await self._poll()
        now = self._slots.now()
        for name, next_offset in polled.next_offsets.items():
            if (owned := self._owned.get(name)) is not None:
                found = [each for each in polled.records if each.origin.partition == name]
                self._read(owned, [each for each in found if not owned.state.is_done(each.origin.offset)], next_offset, now)
        for name, end in polled.log_ends.items():
            if name in self._owned:
                self._owned[name].log_end = end
        if self._clients.orders is not None and monotonic() > self._orders_at:
            self._orders_at = monotonic() + _ORDERS_SECONDS
            wanted = {name: owned.ordered for name, owned in self._owned.items() if owned.ordered is not None}
            batches = await self._in_thread(partial(self._order_reading.read, self._clients.orders, wanted))
            for name in batches.keys() & self._owned.keys():
                wanted[name].execute_all(batches[name].records, self._slots.now())
        self._slots.wake()
        if self._commits.are_due:
            await self._publish()

    async def _poll(self) -> Polled:
        states = {name: owned.state for name, owned in self._owned.items()}
        paused = partitions_to_pause(self.stage, self._slots.pressure(), states)
        readable = [state.readable for name, state in states.items() if name not in paused]
        is_busy = any(owned.calls or owned.state.has_news for owned in self._owned.values())
        wait_ms = _BUSY_POLL_MS if is_busy else _IDLE_POLL_MS
        transport, begun = self._clients.transport, self._passed()
        poll = partial(transport.poll, max(1, min([AT_ONCE, *readable])), wait_ms, paused)
        polled, standing = await self._in_thread(lambda: (poll(), transport.standing()))
        # A process that was stopped in the midst of a poll knows nothing of what has happened since.
        self._polled_at, self.notes = begun, standing.notes
        return polled

    def _read(self, owned: Owned, records: Sequence[Record], next_offset: int, now: int) -> None:
        opened, dead_letters = list[OpenRecord](), list[OutputRecord]()
        for record in records:
            if (each := owned.reading.open(record, now)) is None:
                continue
            if (flaw := owned.reading.find_flaw(each)) is None:
                opened.append(each)
            else:
                dead_letters.append(self._calls.dead_letter(each, flaw.reason, str(flaw)))
        owned.state.read(opened, next_offset, dead_letters)

    async def _follow(self) -> None:
        """Drop the partitions that the group has taken away, and take over new ones."""
        assigned = set(await self._in_thread(self._clients.transport.assignment))
        for new in self._holdings.follow(assigned):
            take, now = self._takeover.take, self._slots.now()
            with self._holdings.taking(new):
                self._holdings.add(await self._in_thread(partial(take, self._clients, new, now, self._holdings.before.get(new))))

    async def _publish(self) -> None:
        """Commit positions, with what is leaving, in one transaction."""
        if outputs := self._commits.next():
            try:
                await self._in_thread(partial(self._clients.transport.publish, outputs))
            except TransportRefused:
                self._commits.is_refused = True
                raise
            self._commits.published()
            self._slots.wake()  # What was published lets the records of its key continue.

    async def _drain(self) -> None:
        """Commit while calls end, for one of them may be slow; then once more."""
        until = monotonic() + _DRAIN_SECONDS
        while monotonic() < until - _LAST_COMMIT_SECONDS and (calls := self._running()):
            await asyncio.wait(calls, timeout=_LOOK_SECONDS)
            await self._guarded(self._last_turn)
        while monotonic() < until and self._commits.has_more:
            await self._guarded(self._last_turn)

    def _running(self) -> set["asyncio.Task[None]"]:
        return {call for owned in self._owned.values() for call in owned.calls}

    async def _last_turn(self) -> None:
        """Commit. A refusal is resolved by the group's work, which is done by a poll."""
        await self._follow()
        await self._publish()
        if self._commits.has_more:
            await self._in_thread(partial(self._clients.transport.poll, 0, _BUSY_POLL_MS))

    async def _in_thread(self, call: Callable[[], _Found]) -> _Found:
        return await asyncio.get_running_loop().run_in_executor(self._thread, call)
