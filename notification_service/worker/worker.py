"""A worker's life: take over, run cycles, report, drain, close."""

import logging
from collections.abc import Callable

import msgspec

from guardian.actor_gateway import ActorsFailed
from guardian.backoff import Stopped
from guardian.region import RegionState
from notification_service.configuration.configuration import Configuration
from notification_service.status.file import StatusFile
from notification_service.status.report import Identity, State, report
from notification_service.supervision.in_flight_memory import InFlightMemory
from notification_service.supervision.suspects import Suspects
from notification_service.supervision.system_clock import SystemClock
from notification_service.wiring.composition import Parts, compose, resequencer_settings
from notification_service.worker.deadline_text import deadline_words
from notification_service.worker.in_flight import WorkerInFlight
from notification_service.worker.region_control import RegionControl
from notification_service.worker.server_states import ServerStates
from notification_service.worker.worker_report import with_metrics
from resequencer.clock import Instant

_log = logging.getLogger("resequencer.daemon")
_REPORT_MS = 500
_EXPIRE_MS = 10_000
_REASONS = {State.HEALING: "the storage lost committed work; its records are being read again"}
_OF_REGION = {RegionState.FAILED: State.FAILED, RegionState.RESETTING: State.RESETTING}
_NOT_JOINED = "waiting for Kafka to assign partitions"
_MANY = 100
"""If one call expired this many idle units, there are probably more, and the next call follows at once."""


class Worker:
    """Runs cycles until it is told to stop. It reports twice a second, also while a server is unavailable.

    `beside` is called after each cycle and must not wait. The supervisor reads the envelope in flight from `memory`.
    """

    def __init__(
        self,
        configuration: Configuration,
        wait: Callable[[int], None],
        is_stopping: Callable[[], bool],
        identity: Identity,
        beside: Callable[[Instant], None] | None = None,
        memory: InFlightMemory | None = None,
    ) -> None:
        self._clock = SystemClock()
        self._is_stopping = is_stopping
        self._sleep = wait
        self._beside = beside
        self._status = StatusFile(configuration.notification.run_directory, identity.slot)
        self._identity = identity
        self._settings = resequencer_settings(configuration)
        self._reported_at = self._expired_at = self._looked_at = 0
        self._has_begun = False
        self._told: State | None = None
        self._server_states = ServerStates()
        self._parts: Parts | None = None
        self._status.write(report(self._identity, State.STARTING, None, self._clock.now()))
        self._in_flight = WorkerInFlight(memory or InFlightMemory(), Suspects(configuration.notification.run_directory))
        self._parts = compose(configuration, self._wait, is_stopping, identity.slot, self._in_flight)
        self._region = RegionControl(configuration, identity, self._parts.region)
        # The first worker of a service that starts fails at once if a person must fix something; later workers wait for it.
        self._parts.retry.waits_for_people = identity.restarts > 0

    def run(self) -> None:
        """Run until told to stop; then drain and close everything.

        Raises:
            ResequencerError: The worker must not go on; what it had not committed will be read again.
        """
        parts, reason = self._get_parts(), None
        parts.handler.follow()
        try:
            while not self._is_stopping():
                self._run_cycle()
                self._look_after()
            self._drain()
        except Stopped as error:
            _log.warning("%s", error)
        except Exception as error:
            reason = str(error) or type(error).__name__
            raise
        finally:
            self._leave(parts, reason)

    def _run_cycle(self) -> None:
        """Run one cycle. The worker has begun after the first cycle that knew the assignment: it has tried to take over what was
        assigned.

        If nothing is assigned, the storage must have answered before.
        """
        parts = self._get_parts()
        has_joined = parts.servers.transport.standing().has_joined
        self._in_flight.look()
        parts.region.run_once()
        self._in_flight.forget_those_that(parts.cycle.partitions.has_left)
        if has_joined and not self._has_begun:
            parts.retry.until_answered("storage", parts.servers.storage.connect)
            self._has_begun = parts.retry.waits_for_people = True

    def _get_parts(self) -> Parts:
        assert self._parts is not None
        return self._parts

    def _look_after(self) -> None:
        """Do the periodic work beside the cycles."""
        self._get_parts().handler.take_up()
        now = self._clock.now()
        if _is_over(_EXPIRE_MS, self._expired_at, now):
            gone = self._get_parts().cycle.expire()
            self._expired_at = 0 if gone >= _MANY else now
        now = self._clock.now()
        is_obeyed, state = self._obey(now), self._state()
        if is_obeyed or state is not self._told or _is_over(_REPORT_MS, self._reported_at, now):
            self._report(now, state)
        self._get_parts().mishaps.tell(now)
        if self._beside is not None:
            self._beside(now)

    def _obey(self, now: Instant) -> bool:
        """Carry out an order for the region, and return whether there was one."""
        if not _is_over(_REPORT_MS, self._looked_at, now):
            return False
        self._looked_at = now
        return self._region.look()

    def _drain(self) -> None:
        _log.info("draining")
        self._report(self._clock.now(), State.DRAINING)
        self._get_parts().cycle.close()
        _log.info("drained")

    def _leave(self, parts: Parts, reason: str | None) -> None:
        now = self._clock.now()
        parts.cycle.region.stop()
        try:
            self._report(now, State.STOPPED, reason)
        except ActorsFailed:
            # A failed guardian has no metrics any more, and its error is being raised.
            self._status.write(report(self._identity, State.STOPPED, reason, now))
        for each in parts.servers:
            each.close()
        parts.handler.close()

    def _wait(self, milliseconds: int) -> None:
        """Wait for input or for an unavailable server, and keep the report fresh."""
        self._sleep(milliseconds)
        now = self._clock.now()
        if self._parts is not None and _is_over(_REPORT_MS, self._reported_at, now):
            self._report(now, self._state())

    def _report(self, now: Instant, state: State, reason: str | None = None) -> None:
        parts = self._get_parts()
        plain = report(self._identity, state, reason or self._reason(state), now)
        units_report, standing = parts.servers.actors.report_units(), parts.servers.transport.standing()
        measured = with_metrics(plain, parts.cycle, units_report, standing, parts.watched.overruns, now)
        self._status.write(
            msgspec.structs.replace(
                measured,
                lookups_version=parts.handler.version,
                lookups_created_at=parts.handler.created_at,
                deadlines=deadline_words(self._settings, parts.handler.profile_count),
                region=self._region.report(standing, is_waiting=self._is_waiting()),
                servers=self._server_states.note(self._find_unavailable(), now, is_known=self._has_begun),
            )
        )
        self._reported_at = now
        self._tell(state)

    def _tell(self, state: State) -> None:
        """Log each time that the worker becomes ready. The part that waited has logged the reason before."""
        if state is State.READY and self._told is not State.READY:
            _log.info("ready")
        self._told = state

    def _reason(self, state: State) -> str | None:
        parts = self._get_parts()
        untaken = next(iter(parts.cycle.partitions.put_off_takeovers.untaken.values()), None)
        region = parts.cycle.region
        if region.state in _OF_REGION and region.failure is not None:
            return f"{region.failure.participant}: {region.failure.reason}"
        why = parts.retry.reason or (untaken.reason if untaken else parts.cycle.refusal)
        if why is None and state is State.STARTING and not parts.servers.transport.standing().has_joined:
            return _NOT_JOINED
        return why or _REASONS.get(state)

    def _is_waiting(self) -> bool:
        """Whether a server does not answer. One that refuses something answers."""
        parts = self._get_parts()
        untaken = parts.cycle.partitions.put_off_takeovers.untaken.values()
        return parts.retry.unavailable is not None or any(not each.is_refused for each in untaken)

    def _find_unavailable(self) -> dict[str, str | None]:
        """Return why each server of the worker that does not answer does not."""
        parts = self._get_parts()
        found: dict[str, str | None] = {}
        for each in parts.cycle.partitions.put_off_takeovers.untaken.values():
            found.setdefault(each.what, each.reason)
        if parts.cycle.refusal is not None:
            found["output"] = parts.cycle.refusal
        if parts.retry.unavailable is not None:
            found[parts.retry.unavailable] = parts.retry.reason
        return found

    def _state(self) -> State:
        parts = self._get_parts()
        cycle, untaken = parts.cycle, parts.cycle.partitions.put_off_takeovers.untaken
        away = parts.retry.unavailable or next((each.what for each in untaken.values()), None)
        if away is not None:
            return State(f"{away} unavailable")
        if cycle.region.state in _OF_REGION:
            return _OF_REGION[cycle.region.state]
        if cycle.refusal is not None:
            return State.OUTPUT_UNAVAILABLE
        if cycle.partitions.is_healing:
            return State.HEALING
        if self._is_stopping():
            return State.DRAINING
        return State.READY if self._has_begun else State.STARTING


def _is_over(span_ms: int, since: Instant, now: Instant) -> bool:
    """Return whether the span is over; also if the clock was set back, or the work would stop until the clock is there again."""
    return not 0 <= now - since < span_ms
