"""Tells what the region of a worker is in, and carries out the resets that operators order."""

from collections.abc import Sequence

from msgspec.structs import asdict

from guardian.ports import Participant, TransportStatus
from guardian.resets import RegionCycles, ResetAnswer
from notification_service.configuration.configuration import Configuration
from notification_service.status.region_order import RegionOrder, RegionOrderFile
from notification_service.status.report import Identity, ParticipantStatus, RegionStatus
from resequencer.clock import instant_text


class RegionControl:
    """Reads the orders for the worker of this slot, and makes the part of its report about the region."""

    def __init__(self, configuration: Configuration, identity: Identity, cycles: RegionCycles) -> None:
        self._file = RegionOrderFile(configuration.notification.run_directory, identity.slot)
        self._service = identity.process_id
        self._kind = configuration.ingress.transport.value
        self._cycles = cycles
        self._last: tuple[RegionOrder, ResetAnswer] | None = None

    def look(self) -> bool:
        """Obey or refuse an order, if there is one, and return whether there was. Called between two cycles."""
        order = self._file.take(self._service)
        if order is None:
            return False
        self._last = order, self._cycles.reset_by(order.by, is_forced=order.is_forced)
        return True

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
