"""What the service adds around a handler: how users' code is called, lookups of the current release, a watch over each call."""

import logging
from asyncio import CancelledError, current_task
from collections.abc import AsyncIterable, Callable, Coroutine
from inspect import CORO_CLOSED, getcoroutinestate
from threading import Lock
from typing import Any
from weakref import ref

from guardian.backoff import LogRateLimit, kind_of
from notification_service.configuration.configuration import Configuration
from notification_service.configuration.schema import path_of
from notification_service.configuration.sections import Lookup
from notification_service.lookups.directory import LookupsDirectory
from notification_service.lookups.flow_profiles import ReleasedProfiles
from notification_service.lookups.follower import Follower
from notification_service.lookups.manifest import Pointer
from notification_service.lookups.release import Release, open_release, read_manifest
from notification_service.lookups.shapes import PROFILES, NoRelease, ReleaseRefused, Tables
from notification_service.payments.enrichment import Enrichment, Lookups
from notification_service.payments.notification_settings import NotificationSettings
from notification_service.payments.port import VersionedHandler
from notification_service.wiring.call_runner import HandlingThreads
from resequencer.call import Call
from resequencer.clock import Clock, Instant
from resequencer.errors import ConfigurationError, DependencyUnavailable, PermanentError, TransientError, words_of
from resequencer.event import Event
from resequencer.handler import Handled, Handler, HandlerCall, Marks, find_call
from resequencer.in_flight import CallKind, InFlight
from resequencer.users_code import Way, call_guarded, failure_of, is_async

_log = logging.getLogger("resequencer.lookups")

_DIRECTORY = path_of(Lookup, "directory")

Calls = list[ref[Coroutine[Any, Any, Handled]]]
"""Calls under way, by weak references without callbacks: they end in other threads at any moment."""

Make = Callable[[NotificationSettings | Enrichment], VersionedHandler]


class EnrichedHandler:
    """Handles with the lookups of one release until `take_up` finds another; without a release, as it was made.

    The profiles of flows come from the same release. If the handler waits, this one does: a call has the release of the moment in
    which it was made, which is closed only after the last of its calls.
    """

    def __init__(self, handler: VersionedHandler, release: Release | None, follower: Follower) -> None:
        self.call: HandlerCall | None = None if find_call(handler) is None else self._call
        self._handler = handler
        self._release: Release | None = None
        self._profiles: ReleasedProfiles | None = None
        self._follower = follower
        self._calls: Calls = []
        self._replaced: list[tuple[Release, Calls]] = []
        if release is not None:
            self._use(release)

    @property
    def version(self) -> str | None:
        """The version in use; None before the first release."""
        return None if self._release is None else self._release.version

    @property
    def created_at(self) -> str | None:
        """When the release in use was built, in ISO 8601 (UTC); None before the first release."""
        return None if self._release is None else self._release.manifest.created_at

    @property
    def profile_count(self) -> int:
        """The number of completion profiles in use."""
        table = None if self._release is None else self._release.manifest.tables.get(PROFILES)
        return 0 if table is None else table.rows

    def follow(self) -> None:
        """Start to look for new releases."""
        if self._release is not None:
            _log.info("lookups %s", self._release.version)
        self._follower.start()

    def handle(self, envelope: Event, data: Any, marks: Marks, now: Instant) -> Handled:
        return self._handler.handle(envelope, data, marks, now)

    def _call(self, envelope: Event, data: Any, marks: Marks, now: Instant) -> Coroutine[Any, Any, Handled]:
        call = find_call(self._handler)
        assert call is not None, "a handler waits with each release"
        made = call(envelope, data, marks, now)
        self._calls.append(ref(made))
        return made

    def find_lateness_ms(self, entity: str | None, flow: str) -> int | None:
        return None if self._profiles is None else self._profiles.find_lateness_ms(entity, flow)

    def take_up(self) -> None:
        """Switch to a new release, if there is one. Called between two cycles, so that a cycle uses one version. Never waits."""
        taken = self._follower.take()
        if taken is not None:
            before = self._release
            if before is not None:
                self._replaced.append((before, self._calls))
            self._calls = []
            self._use(taken)
            _log.info("lookups %s, %s", taken.version, "the first" if before is None else f"after {before.version}")
        if self._calls:
            self._calls = _under_way(self._calls)
        if self._replaced:
            self._close_unused()

    def close(self) -> None:
        """Stop following, and close the releases. One that a call still reads stays open until the process ends."""
        self._follower.close()
        if self._release is not None:
            self._replaced.append((self._release, self._calls))
        self._close_unused()

    def _use(self, release: Release) -> None:
        tables: Tables = release if self.call is None else _SharedTables(release)
        self._release, self._profiles = release, ReleasedProfiles(tables)
        self._handler = self._handler.with_lookups(Lookups(tables))

    def _close_unused(self) -> None:
        replaced, self._replaced = self._replaced, []
        for release, calls in replaced:
            if remaining := _under_way(calls):
                self._replaced.append((release, remaining))
            else:
                release.close()


def _under_way(calls: Calls) -> Calls:
    """Return the calls that have not ended. One that was dropped before it began has."""
    return [each for each in calls if (call := each()) is not None and getcoroutinestate(call) != CORO_CLOSED]


class _SharedTables:
    """The tables of a release for several threads at the same time, which LMDB does not allow. `Tables`."""

    def __init__(self, release: Release) -> None:
        self.version = release.version
        self._release = release
        self._lock = Lock()

    def find(self, table: str, key: bytes) -> bytes | None:
        with self._lock:
            return self._release.find(table, key)


def make_enriched_handler(configuration: Configuration, make: Make, load: Callable[[], NotificationSettings]) -> EnrichedHandler:
    """Make the handler with the current release. If none was published and none is required, it uses the table that `load` reads.

    Raises:
        ConfigurationError: A release is required and there is none, it is damaged, or the table is refused.
    """
    lookups = configuration.lookups
    directory = LookupsDirectory(lookups.directory)
    pointer = find_current(configuration)
    if pointer is None:
        return EnrichedHandler(make(load()), None, Follower(directory, None, lookups.check_every_ms))
    try:
        release = open_release(directory, pointer)
    except ReleaseRefused as error:
        raise ConfigurationError(_DIRECTORY, str(error)) from error
    return EnrichedHandler(make(Lookups(release)), release, Follower(directory, pointer, lookups.check_every_ms))


def find_current(configuration: Configuration) -> Pointer | None:
    """Return the release to use; None if none was published and none is required.

    Only the manifest of the release is read, which takes no time. Damage is detected when the release is opened.

    Raises:
        ConfigurationError: A release is required and there is none, or its manifest cannot be read.
    """
    directory = LookupsDirectory(configuration.lookups.directory)
    try:
        pointer = directory.get_current()
        read_manifest(directory, pointer.version)
    except NoRelease as error:
        if configuration.lookups.is_required:
            raise ConfigurationError(_DIRECTORY, str(error)) from error
        return None
    except (ReleaseRefused, OSError) as error:
        raise ConfigurationError(_DIRECTORY, str(error)) from error
    return pointer


_AT_ONCE = 1.0
"""How many seconds calls that find a server unavailable may take before the limit applies."""

_HANDLING = CallKind.HANDLING


class WatchedHandler:
    """A handler around another. Every attempt goes through it: for an arrival, from the stash, or at a deadline.

    `overruns` counts the attempts since the start of the worker that took longer than the processing timeout, failed ones too. An
    attempt runs in the worker's own thread and cannot be interrupted.

    Calls that find a server unavailable may take at most half of the worker's time: if a server's failure shows only after a
    time-out, each envelope would take that long. Beyond that, all envelopes wait for that server without a call, until there is
    time again. Envelopes that do not need the server wait too, because the need is known only after the call.

    `passed` returns seconds that pass, from any beginning: no clock that is set back or forward counts here.
    """

    def __init__(
        self,
        handler: Handler,
        in_flight: InFlight,
        processing_timeout_ms: int,
        passed: Callable[[], float],
        note: Callable[[Event, Exception | None, int], object],
    ) -> None:
        """`note` is called with an error and how many milliseconds the call took, and with None for an overrun."""
        self.overruns = 0
        self._handler = handler
        self._in_flight = in_flight
        self._timeout = processing_timeout_ms / 1_000
        self._passed = passed
        self._note = note
        self._server = ""
        self._spent = self._counted_at = 0.0

    def handle(self, envelope: Event, data: Any, marks: Marks, now: Instant) -> Handled:
        """Call the wrapped handler.

        Raises:
            EndedItsWorker: Too many workers ended while they handled this envelope.
            DependencyUnavailable: The handler's, or calls to the server that it named last have taken too long.
        """
        in_flight = self._in_flight
        in_flight.take(envelope, _HANDLING)
        began_at = self._passed()
        try:
            if self._spent and self._spent_by(began_at) > _AT_ONCE:
                raise DependencyUnavailable(self._server)
            return self._handler.handle(envelope, data, marks, now)
        except Exception as error:
            if isinstance(error, TransientError):
                in_flight.postpone(envelope)
            if isinstance(error, DependencyUnavailable):
                self._server, self._counted_at = error.name, self._passed()
                self._spent += self._counted_at - began_at
            else:  # An unavailable server is logged by the part that waits for it.
                self._note(envelope, error, _milliseconds(self._passed() - began_at))
            raise
        finally:
            took = self._passed() - began_at
            if took > self._timeout:
                self.overruns += 1
                self._note(envelope, None, _milliseconds(took))
            in_flight.clear()

    def _spent_by(self, at: float) -> float:
        """Return the time spent on failed calls, minus the time for other work since."""
        self._spent, self._counted_at = max(0.0, self._spent - (at - self._counted_at)), at
        return self._spent


def _milliseconds(seconds: float) -> int:
    return round(1_000 * seconds)


class HandlingLog:
    """Logs failures and overruns, at a limited rate for each kind."""

    def __init__(self, rate_limit: LogRateLimit, clock: Clock, processing_timeout_ms: int, max_attempts: int) -> None:
        self._rate_limit = rate_limit
        self._clock = clock
        self._timeout_ms = processing_timeout_ms
        self._max_attempts = max_attempts

    def note(self, envelope: Event, error: Exception | None, took_ms: int) -> None:
        """Log a failure, or without an error an overrun."""
        if error is None:
            kind, what = "overrun", f"took {took_ms / 1_000:.1f} s, processing-timeout is {self._timeout_ms / 1_000:g} s"
        else:
            outcome = "another attempt follows, if any remains" if isinstance(error, TransientError) else "no further attempt"
            kind, what = kind_of(error), f"failed, {outcome}: {words_of(error)}"
        self._log(envelope, error, kind, what)

    def note_call(self, call: Call, error: Exception | None, took_ms: int) -> None:
        """Log that a call beside the worker's thread failed or timed out. The part that waits for a server logs that one."""
        if error is None or isinstance(error, DependencyUnavailable):
            return
        attempt = call.attempts + 1
        is_repeated = isinstance(error, TransientError) and attempt < self._max_attempts
        outcome = "another attempt follows" if is_repeated else "no further attempt"
        what = f"failed after {took_ms / 1_000:.1f} s, attempt {attempt} of {self._max_attempts}, {outcome}: {words_of(error)}"
        self._log(call.envelope, error, kind_of(error), what)

    def _log(self, envelope: Event, error: Exception | None, kind: str, what: str) -> None:
        origin = envelope.record.origin
        places = {"unit": envelope.unit, "partition": str(origin.partition), "position": str(origin)}
        self._rate_limit.note(kind, f"handling {origin} of unit {envelope.unit} {what}", self._clock.now(), places, error)


async def await_it(who: str, event: Event, call: Callable[[], Any], finish: Callable[[Any], Any]) -> Any:
    """Await a coroutine, or what an async generator yields, as a list. `resequencer.users_code.Way`.

    `CancelledError` passes if the task is cancelled; the user's own is a failure like others.
    """
    del event
    try:
        answer = call()
        if not isinstance(answer, AsyncIterable):
            answer = await answer
        return finish([each async for each in answer] if isinstance(answer, AsyncIterable) else answer)
    except (TransientError, GeneratorExit):  # The latter closes the coroutine.
        raise
    except BaseException as error:  # Foreign code may raise anything.
        task = current_task()
        is_cancelled = isinstance(error, CancelledError) and task is not None and task.cancelling()
        if is_cancelled or type(error) is PermanentError:
            raise
        raise failure_of(who, error) from error


class UsersCalls:
    """Calls users' code beside the turns: awaits what is async, and has so many `threads` for what is synchronous.

    At most `limit` calls may run at the same time.
    """

    def __init__(self, threads: HandlingThreads, count: int, concurrency: int) -> None:
        self.limit = concurrency
        self.threads = threads
        self._count = count

    def find_way(self, function: Callable[..., Any]) -> Way | None:
        """Return the way to call a user's function; None for one that is synchronous without threads."""
        if is_async(function):
            return await_it
        if not self._count:
            return None
        self.limit = min(self.limit, self._count)
        return self._call_in_thread

    async def _call_in_thread(self, who: str, event: Event, call: Callable[[], Any], finish: Callable[[Any], Any]) -> Any:
        return await self.threads.run(lambda: _guarded(who, lambda: finish(call())), event)


def _guarded(who: str, call: Callable[[], Any]) -> Any:
    try:
        return call_guarded(who, call, TransientError)
    except KeyboardInterrupt as error:
        raise failure_of(who, error) from error
