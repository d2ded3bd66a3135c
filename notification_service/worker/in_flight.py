"""The envelope that a worker has in flight: its supervisor sees it, and an envelope that ended too many workers is refused."""

import logging
from collections.abc import Callable, Mapping

from notification_service.events.identifiers import shown
from notification_service.supervision.in_flight_memory import InFlightMemory, identity_of
from notification_service.supervision.suspects import REMEDY, Suspect, Suspects
from resequencer.envelope import DataEnvelope
from resequencer.errors import EndedItsWorker
from resequencer.in_flight import CallKind
from resequencer.record import Origin

_log = logging.getLogger("resequencer.daemon")


class WorkerInFlight:
    """Call `look` before each cycle and `forget_those_that` after it: an envelope that ended another worker may be
    ours now.
    """

    def __init__(self, memory: InFlightMemory, suspects: Suspects) -> None:
        self._put = self.take = memory.put
        self.clear = memory.clear
        self._suspects = suspects
        self._known: Mapping[Origin, Suspect] = {}
        self._settled: dict[Origin, Suspect] = {}

    def look(self) -> None:
        """Read the present suspects. Mostly there are none, and then nothing stands before the memory."""
        self._known = self._suspects.find_all()
        self.take = self._take_suspect if self._known else self._put

    def _take_suspect(self, envelope: DataEnvelope, kind: CallKind) -> None:
        self._look_closer(envelope, kind)
        self._put(envelope, kind)

    def put_off(self, envelope: DataEnvelope) -> None:
        self._settled.pop(envelope.record.origin, None)

    def forget_those_that(self, have_left: Callable[[Origin], bool]) -> None:
        """Delete the suspects whose envelopes were handled or dead-lettered here."""
        for origin in [each for each in self._settled if have_left(each)]:
            self._suspects.forget(self._settled.pop(origin))

    def _look_closer(self, envelope: DataEnvelope, kind: CallKind) -> None:
        origin = envelope.record.origin
        suspect = self._known.get(origin)
        if suspect is None:
            return
        if suspect.identity != identity_of(envelope):
            self._suspects.forget(suspect)  # Its topic was recreated, or its file replaced: this is another record.
            return
        is_refused = suspect.is_condemned and suspect.kind == kind
        if is_refused or kind is CallKind.HANDLING:
            self._settled[origin] = suspect
        if is_refused:
            self._refuse(suspect)

    def _refuse(self, suspect: Suspect) -> None:
        """Raise the error that makes the envelope a dead letter."""
        error = EndedItsWorker(
            f"{suspect.kind.words} it ended {suspect.exits} workers, the last of which {suspect.last_exit}; {REMEDY}"
        )
        places = {"unit": suspect.unit, "partition": str(suspect.origin.partition), "position": str(suspect.origin)}
        _log.error("%s of unit %s becomes a dead letter: %s", suspect.origin, shown(suspect.unit), error, extra=places)
        raise error
