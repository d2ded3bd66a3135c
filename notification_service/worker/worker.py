"""A worker's life: take over, run cycles, report, drain, close."""

import logging
from collections.abc import Callable, Mapping, Sequence
from threading import Event as Flag
from threading import Thread
from time import monotonic

import msgspec
from msgspec.structs import asdict

from guardian.actor_gateway import ActorsFailed
from guardian.backoff import Stopped
from guardian.ports import Participant, TransportStatus
from guardian.region import RegionState
from guardian.resets import RegionCycles, ResetAnswer
from notification_service.configuration.configuration import Configuration
from notification_service.configuration.sections import TransportType
from notification_service.configuration.transports import sinks_of
from notification_service.console.access.settings import INITIAL_STATE
from notification_service.events.identifiers import shown
from notification_service.status.file import StatusFile
from notification_service.status.report import Identity, ParticipantStatus, RegionStatus, State, report
from notification_service.status.sink_attributes import RegionOrder, RegionOrderFile, SinkAttributesFile
from notification_service.supervision.in_flight_memory import InFlightMemory, identity_of
from notification_service.supervision.stop_signal import Wait
from notification_service.supervision.suspects import REMEDY, Suspect, Suspects
from notification_service.supervision.system_clock import SystemClock
from notification_service.wiring.composition import Parts, compose
from notification_service.wiring.regions import find_initial_refusal
from notification_service.worker.worker_report import ServerStates, with_metrics
from resequencer.clock import Instant, instant_text
from resequencer.errors import EndedItsWorker
from resequencer.event import Event
from resequencer.in_flight import CallKind, CallSlots
from resequencer.keys.value_types import Duration
from resequencer.order import is_same_person
from resequencer.printable import counted, printable
from resequencer.record import Origin
from resequencer.settings import ResequencerSettings

_log = logging.getLogger("resequencer.daemon")


_HANDLING, _READING = CallKind.HANDLING, CallKind.READING


class WorkerInFlight:
    """Call `look` before each cycle and `forget_those_that` after it: an envelope that ended another worker may be
    ours now.
    """

    def __init__(self, memory: InFlightMemory, suspects: Suspects) -> None:
        self._put = self.take = memory.turn.take
        self.clear = memory.turn.clear
        self.beside = CallSlots(memory.step, memory.overdue, memory.threads)
        self._suspects = suspects
        self._known: Mapping[Origin, Suspect] = {}
        self._answered: dict[Origin, Suspect] = {}
        """Those whose call has ended in the present cycle; a turn of the next cycle takes the answer."""
        self._settled: dict[Origin, Suspect] = {}

    def look(self) -> None:
        """Read the present suspects. Mostly there are none, and then nothing stands before the memory."""
        self._known = self._suspects.find_all()
        self._settled |= self._answered
        self._answered = {}
        self.take = self._take_suspect if self._known else self._put

    def _take_suspect(self, envelope: Event, kind: CallKind) -> None:
        self._look_closer(envelope, kind)
        self._put(envelope, kind)

    def postpone(self, envelope: Event) -> None:
        self._settled.pop(envelope.record.origin, None)

    def forget_those_that(self, are_done: Callable[[Origin], bool]) -> None:
        """Delete the suspects whose envelopes were handled or dead-lettered here."""
        for origin in [each for each in self._settled if are_done(each)]:
            self._suspects.forget(self._settled.pop(origin))

    def is_suspect(self, envelope: Event) -> bool:
        suspect = self._find(envelope, _HANDLING) if self._known else None
        return suspect is not None and suspect.kind is _HANDLING

    def admit(self, envelope: Event) -> None:
        suspect = self._find(envelope, _HANDLING) if self._known else None
        if suspect is not None and suspect.is_condemned and suspect.kind is _HANDLING:
            self._refuse(suspect)

    def settle(self, envelope: Event) -> None:
        suspect = self._find(envelope, _HANDLING) if self._known else None
        if suspect is not None:
            self._answered[suspect.origin] = suspect

    def _look_closer(self, envelope: Event, kind: CallKind) -> None:
        suspect = self._find(envelope, kind)
        if suspect is None:
            return
        is_refused = suspect.is_condemned and suspect.kind == kind
        if is_refused or kind is _HANDLING:
            self._settled[suspect.origin] = suspect
        if is_refused:
            self._refuse(suspect)

    def _find(self, envelope: Event, kind: CallKind) -> Suspect | None:
        suspect = self._known.get(envelope.record.origin)
        # What is read has another identity than the event that comes of it.
        if suspect is not None and suspect.identity != identity_of(envelope) and (suspect.kind is _READING) == (kind is _READING):
            self._suspects.forget(suspect)  # Its topic was recreated, or its file replaced: this is another record.
            return None
        return suspect

    def _refuse(self, suspect: Suspect) -> None:
        """Raise the error that makes the envelope a dead letter."""
        error = EndedItsWorker(
            f"{suspect.kind.words} it ended {suspect.exits} workers, the last of which {suspect.last_exit}; {REMEDY}"
        )
        places = {"unit": suspect.unit, "partition": str(suspect.origin.partition), "position": str(suspect.origin)}
        of_unit = f" of unit {shown(suspect.unit)}" if suspect.unit else ""
        _log.error("%s%s becomes a dead letter: %s", suspect.origin, of_unit, error, extra=places)
        raise error


class RegionControl:
    """Reads the orders for the worker of this slot, and makes the part of its report about the region."""

    def __init__(self, configuration: Configuration, identity: Identity, cycles: RegionCycles) -> None:
        self._configuration = configuration
        self._file = RegionOrderFile(configuration.notification.run_directory, identity.slot)
        self._begun = self._file.find_begun()
        self._service = identity.process_id
        self._kind = configuration.ingress.transport.value
        self._cycles = cycles
        self._last: tuple[RegionOrder, ResetAnswer] | None = None

    def look(self) -> bool:
        """Execute or refuse an order, if there is one, and return whether there was. Called between two cycles.

        An order for the initial state that an earlier worker began is executed again once all is taken over: it may have set back
        a part of the partitions. Others are read meanwhile: a region that has failed waits for one. A newer one for the initial
        state takes its place.
        """
        is_blocked = self._begun is not None and self._cycles.find_obstacle() is not None
        order = self._file.take(self._service) if self._begun is None or is_blocked else self._begun
        if order is None:
            return False
        if order.to_initial and not order.is_dry_run:
            self._begun = None
        if order.to_initial:
            self._last = order, self._reset_to_initial(order)
            if self._begun is None:
                self._file.end()
        else:
            self._last = order, self._cycles.reset_by(order.by, is_forced=order.is_forced)
        return True

    def _reset_to_initial(self, order: RegionOrder) -> ResetAnswer:
        refusal = find_initial_refusal(self._configuration)
        needs_approval = INITIAL_STATE in self._configuration.http.approval and not order.is_dry_run
        if refusal is None and needs_approval and (order.approved_by is None or is_same_person(order.by, order.approved_by)):
            refusal = f"{INITIAL_STATE} needs the approval of a second person (http.approval)"
        if refusal is not None:
            _log.warning("refused the reset of the region to its initial state that %s ordered: %s", order.by, refusal)
            return ResetAnswer(is_done=False, text=refusal)
        second = f", approved by {order.approved_by}" if order.approved_by is not None else ""
        who = f"{order.by}{second} ({order.because})" if order.because else order.by
        answer = self._cycles.reset_to_initial(printable(who), is_dry_run=order.is_dry_run)
        if order.is_dry_run or not answer.is_done or TransportType.MQTT not in sinks_of(self._configuration):
            return answer
        return answer._replace(text=f"{answer.text}; {self._reset_attributes()}")

    def _reset_attributes(self) -> str:
        """Let the sink mqtt go back to its initial state, which is the configuration, and return what came of it."""
        try:
            SinkAttributesFile(self._configuration.notification.run_directory).remove()
        except OSError as error:
            return f"the attributes of the sink mqtt stay as they were set ({error.strerror or error}): `resequencer sink reset`"
        return "the sink mqtt has the attributes that are configured"

    def report(self, standing: TransportStatus, *, is_waiting: bool) -> RegionStatus:
        """Return the region as it is now. `is_waiting`: a server does not answer."""
        region, failure = self._cycles.region, self._cycles.region.failure
        order, answer = self._last if self._last is not None else (None, None)
        return RegionStatus(
            region.shown(is_waiting=is_waiting).value,
            region.sequence,
            region.resets,
            region.attempts,
            tuple(ParticipantStatus(**asdict(each)) for each in self._participants(standing)),
            region.times.drain_ms,
            region.times.checkpoint_ms,
            region.times.publication_ms,
            region.reset_ms,
            failure.participant if failure is not None else None,
            failure.reason if failure is not None else None,
            instant_text(failure.at) if failure is not None else None,
            order.id if order is not None else None,
            answer.text if answer is not None else None,
            answer is not None and answer.is_done,
        )

    def _participants(self, standing: TransportStatus) -> Sequence[Participant]:
        """From Kafka to Kafka and from files to files, one participant is both source and sink."""
        if standing.participants:
            return standing.participants
        is_transactional = self._kind == "kafka"
        return (Participant(self._kind, "source and sink", True, is_transactional, standing.remembers),)


_DURATION = Duration("1ms", "30d")


def deadline_words(settings: ResequencerSettings, profiles: int) -> str | None:
    """Return the words. `profiles` is how many the release in use has; None if the deadline is not learned."""
    learned = settings.learned
    if learned is None:
        return None
    otherwise = _DURATION.show(settings.deadline_ms)
    if not profiles:
        return f"learned, but the current lookups have no completion-profiles; {otherwise} for all flows"
    minimum, maximum = _DURATION.show(learned.at_least_ms), _DURATION.show(learned.at_most_ms)
    return f"learned, {counted(profiles, 'completion-profile')}, between {minimum} and {maximum}; {otherwise} for other flows"


_REPORT_MS = 500
_EXPIRE_MS = 10_000
_REASONS = {State.HEALING: "records are being read again: the storage lost work, or an operator reset the region"}
_OF_REGION = {RegionState.FAILED: State.FAILED, RegionState.RESETTING: State.RESETTING}
_NOT_JOINED = "waiting for Kafka to assign partitions"
_FINISH_MS = 20_000
"""How long a worker that drains waits for the answers of handlers: it has 30 s in all."""
_LOOK_MS = 250
_MANY = 100
"""If one call expired this many idle units, there are probably more, and the next call follows at once."""


class Worker:
    """Runs cycles until it is ordered to stop. It reports twice a second, also while a server is unavailable.

    `beside` is called after each cycle and must not wait. The supervisor reads the envelope in flight from `memory`.
    """

    def __init__(
        self,
        configuration: Configuration,
        wait: Wait,
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
        self._settings = configuration.resequencer
        self._reported_at = self._expired_at = self._looked_at = 0
        self._has_begun = False
        self._reported_state: State | None = None
        self._server_states = ServerStates()
        self._parts: Parts | None = None
        self._status.write(report(self._identity, State.STARTING, None, self._clock.now()))
        self._in_flight = WorkerInFlight(memory or InFlightMemory(), Suspects(configuration.notification.run_directory))
        self._parts = compose(configuration, self._wait, is_stopping, identity.slot, self._in_flight)
        self._region = RegionControl(configuration, identity, self._parts.region)
        # The first worker of a service that starts fails at once if a person must fix something; later workers wait for it.
        self._parts.retry.waits_for_people = identity.restarts > 0

    def run(self) -> None:
        """Run until ordered to stop; then drain and close everything.

        Raises:
            ResequencerError: The worker must not continue; what it had not committed will be read again.
        """
        parts, reason, is_hanging = self._get_parts(), None, False
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
            is_hanging = not _publish_last(parts, error)
            raise
        finally:
            self._leave(parts, reason, is_hanging=is_hanging)

    def _run_cycle(self) -> None:
        """Run one cycle. The worker has begun after the first cycle that knew the assignment: it has tried to take over what was
        assigned.

        If nothing is assigned, the storage must have answered before.
        """
        parts = self._get_parts()
        has_joined = parts.servers.transport.standing().has_joined
        self._in_flight.look()
        parts.region.run_once()
        self._in_flight.forget_those_that(parts.cycle.partitions.is_published)
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
        has_executed, state = self._execute_order(now), self._state()
        if has_executed or state is not self._reported_state or _is_over(_REPORT_MS, self._reported_at, now):
            self._report(now, state)
        self._get_parts().problem_log.tell(now)
        if self._beside is not None:
            self._beside(now)

    def _execute_order(self, now: Instant) -> bool:
        """Carry out an order for the region, and return whether there was one."""
        if not _is_over(_REPORT_MS, self._looked_at, now):
            return False
        self._looked_at = now
        return self._region.look()

    def _drain(self) -> None:
        _log.info("draining")
        self._report(self._clock.now(), State.DRAINING)
        self._finish_calls()
        self._get_parts().cycle.close()
        _log.info("drained")

    def _finish_calls(self) -> None:
        """Take up what the calls of handlers under way answer, as far as that comes in time. The next owner makes the others."""
        parts, end = self._get_parts(), monotonic() + _FINISH_MS / 1_000
        parts.cycle.is_finishing = True
        while parts.servers.actors.finish_calls(_LOOK_MS / 1_000) and monotonic() < end:
            self._run_cycle()
            self._look_after()

    def _leave(self, parts: Parts, reason: str | None, *, is_hanging: bool) -> None:
        """Report and close. A transport that is hanging in a publication ends with the process."""
        now = self._clock.now()
        parts.cycle.region.stop()
        try:
            self._report(now, State.STOPPED, reason)
        except ActorsFailed:
            # A failed guardian has no metrics any more, and its error is being raised.
            self._status.write(report(self._identity, State.STOPPED, reason, now))
        for each in parts.servers:
            if not (is_hanging and each is parts.servers.transport):
                each.close()
        parts.handler.close()
        parts.users_calls.threads.shutdown()

    def _wait(self, milliseconds: int, until: Flag | None = None) -> None:
        """Wait for input or for an unavailable server, and keep the report fresh."""
        self._sleep(milliseconds, until)
        now = self._clock.now()
        if self._parts is not None and _is_over(_REPORT_MS, self._reported_at, now):
            self._report(now, self._state())

    def _report(self, now: Instant, state: State, reason: str | None = None) -> None:
        parts = self._get_parts()
        plain = report(self._identity, state, reason or self._reason(state), now)
        actors, standing = parts.servers.actors, parts.servers.transport.standing()
        units_report, calls = actors.report_units(), actors.report_calls()
        measured = with_metrics(plain, parts.cycle, units_report, standing, parts.watched.overruns, calls, now)
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
        if state is State.READY and self._reported_state is not State.READY:
            _log.info("ready")
        self._reported_state = state

    def _reason(self, state: State) -> str | None:
        parts = self._get_parts()
        untaken = next(iter(parts.cycle.partitions.postponed_takeovers.untaken.values()), None)
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
        untaken = parts.cycle.partitions.postponed_takeovers.untaken.values()
        return parts.retry.unavailable is not None or any(not each.is_refused for each in untaken)

    def _find_unavailable(self) -> dict[str, str | None]:
        """Return why each server of the worker that does not answer does not."""
        parts = self._get_parts()
        found: dict[str, str | None] = {}
        for each in parts.cycle.partitions.postponed_takeovers.untaken.values():
            found.setdefault(each.what, each.reason)
        if parts.cycle.refusal is not None:
            found["output"] = parts.cycle.refusal
        if parts.retry.unavailable is not None:
            found[parts.retry.unavailable] = parts.retry.reason
        return found

    def _state(self) -> State:
        parts = self._get_parts()
        cycle, untaken = parts.cycle, parts.cycle.partitions.postponed_takeovers.untaken
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


_LAST_SECONDS = 1
"""How long a worker that has failed waits for its last publication."""


def _publish_last(parts: Parts, error: Exception) -> bool:
    """Publish the last positions of a worker that has failed. Return whether that has ended in time.

    The error that ends the worker counts, whatever happens here. An outcome that is not known is that of a kill: the next owner
    finds it out.
    """

    def publish() -> None:
        try:
            if positions := parts.cycle.last_positions(error):
                parts.servers.transport.publish(positions)
                _log.info("published the last positions of committed work")
        except Exception as problem:  # noqa: BLE001 - Also a mistake of ours must not hide the error.
            _log.warning("the last positions were not published: %s", problem)

    publishing = Thread(target=publish, name="last-positions", daemon=True)
    publishing.start()
    publishing.join(_LAST_SECONDS)
    if publishing.is_alive():
        _log.warning("the last positions were not published within %d s", _LAST_SECONDS)
    return not publishing.is_alive()


def _is_over(span_ms: int, since: Instant, now: Instant) -> bool:
    """Return whether the span is over; also if the clock was set back, or the work would stop until the clock is there again."""
    return not 0 <= now - since < span_ms
