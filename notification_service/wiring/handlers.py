"""What the service adds around a handler: the lookups of the current release, and a watch over each call."""

import logging
from collections.abc import Callable
from typing import Any

from guardian.backoff import LogRateLimit, kind_of
from notification_service.configuration.configuration import Configuration
from notification_service.configuration.schema import path_of
from notification_service.configuration.sections import Lookup
from notification_service.lookups.directory import LookupsDirectory
from notification_service.lookups.flow_profiles import ReleasedProfiles
from notification_service.lookups.follower import Follower
from notification_service.lookups.manifest import Pointer
from notification_service.lookups.release import Release, open_release, read_manifest
from notification_service.lookups.shapes import PROFILES, NoRelease, ReleaseRefused
from notification_service.payments.enrichment import Enrichment, Lookups
from notification_service.payments.notification_settings import NotificationSettings
from notification_service.payments.port import VersionedHandler
from resequencer.clock import Clock, Instant
from resequencer.errors import ConfigurationError, DependencyUnavailable, TransientError, words_of
from resequencer.event import Event
from resequencer.handler import Handled, Handler, Marks
from resequencer.in_flight import CallKind, InFlight

_log = logging.getLogger("resequencer.lookups")

_DIRECTORY = path_of(Lookup, "directory")

Make = Callable[[NotificationSettings | Enrichment], VersionedHandler]


class EnrichedHandler:
    """Handles with the lookups of one release until `take_up` finds another; without a release, as it was made.

    The profiles of flows come from the same release.
    """

    def __init__(self, handler: VersionedHandler, release: Release | None, follower: Follower) -> None:
        self._handler = handler
        self._release = release
        self._profiles = None if release is None else ReleasedProfiles(release)
        self._follower = follower

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

    def find_lateness_ms(self, entity: str | None, flow: str) -> int | None:
        return None if self._profiles is None else self._profiles.find_lateness_ms(entity, flow)

    def take_up(self) -> None:
        """Switch to a new release, if there is one. Called between two cycles, so that a cycle uses one version. Never waits."""
        taken = self._follower.take()
        if taken is None:
            return
        before, self._release = self._release, taken
        self._handler, self._profiles = self._handler.with_lookups(Lookups(taken)), ReleasedProfiles(taken)
        _log.info("lookups %s, %s", taken.version, "the first" if before is None else f"after {before.version}")
        if before is not None:
            before.close()

    def close(self) -> None:
        self._follower.close()
        if self._release is not None:
            self._release.close()


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

    def __init__(self, rate_limit: LogRateLimit, clock: Clock, processing_timeout_ms: int) -> None:
        self._rate_limit = rate_limit
        self._clock = clock
        self._timeout_ms = processing_timeout_ms

    def note(self, envelope: Event, error: Exception | None, took_ms: int) -> None:
        """Log a failure, or without an error an overrun."""
        if error is None:
            kind, what = "overrun", f"took {took_ms / 1_000:.1f} s, processing-timeout is {self._timeout_ms / 1_000:g} s"
        else:
            outcome = "another attempt follows, if any remains" if isinstance(error, TransientError) else "no further attempt"
            kind, what = kind_of(error), f"failed, {outcome}: {words_of(error)}"
        origin = envelope.record.origin
        places = {"unit": envelope.unit, "partition": str(origin.partition), "position": str(origin)}
        self._rate_limit.note(kind, f"handling {origin} of unit {envelope.unit} {what}", self._clock.now(), places, error)
