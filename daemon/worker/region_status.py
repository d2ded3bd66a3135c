"""What a worker's report says of its region's participants, and the orders to reset the region."""

from pathlib import Path

from connectors.port import TransportStatus
from domain.clock import Clock
from guardian.region import Failure
from guardian.region_cycle import ResetOrder
from status.region_order import RegionOrderFile
from status.report import Identity, ParticipantStatus
from storage.port import Storage

_LOOK_MS = 200


def participants_of(standing: TransportStatus, storage: Storage, failure: Failure | None) -> tuple[ParticipantStatus, ...]:
    """Return the source, the storage, and the sinks."""

    def problem_of(name: str) -> str | None:
        return failure.reason if failure is not None and failure.participant == name else None

    source, *sinks = [ParticipantStatus(each.name, each.abilities, problem_of(each.name)) for each in standing.participants]
    kept = ParticipantStatus("storage", ("durable",) if storage.is_durable else (), problem_of("storage"))
    return source, kept, *sinks


class ResetOrders:
    """Takes the orders for one worker out of the run directory. An order for an earlier worker is removed."""

    def __init__(self, run_directory: Path, identity: Identity, clock: Clock) -> None:
        self._file = RegionOrderFile(run_directory, identity.slot)
        self._identity = identity
        self._clock = clock
        self._looked_at = 0
        self._last: str | None = None
        self._file.remove()  # This worker has not reported yet, so the order is for another one.

    def take(self) -> ResetOrder | None:
        """Return an order once. The file is read a few times a second at most."""
        now = self._clock.now()
        if 0 <= now - self._looked_at < _LOOK_MS:
            return None
        self._looked_at = now
        found = self._file.find(self._identity.process_id)
        if found is None or found.worker_process_id != self._identity.worker_process_id or found.id == self._last:
            return None
        self._last = found.id  # The file of another user may not be removable.
        self._file.remove()
        return ResetOrder(found.id, found.by, found.is_forced)
