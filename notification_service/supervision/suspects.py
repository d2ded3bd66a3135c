"""The envelopes that may have ended workers on this machine: a small file for each, until its output is sent."""

import logging
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import msgspec

from notification_service.supervision.in_flight_memory import InFlightEnvelope
from resequencer.in_flight import MAX_THREADS, CallKind
from resequencer.record import Origin, Partition
from storage.private_file import make_private_directory, replace_durably

_log = logging.getLogger("resequencer.supervisor")

EXITS_OF_ONE = 3
"""After this many exits of workers, the envelope becomes a dead letter."""

REMEDY = "fix the cause, then requeue the record"

_MOST = 2 * MAX_THREADS
"""How many files are kept: one exit may make a suspect of each thread. A file remains if a crash came just after its envelope was
sent, or after its last attempt.
"""


class Suspect(msgspec.Struct, frozen=True):
    """An envelope, the kind of call, how many workers ended during it, and how the last of them ended.

    A worker that ended during several calls counts for none: then there may be no exit.
    """

    topic: str
    partition: int
    offset: int
    unit: str
    kind: CallKind = msgspec.field(name="deed")
    identity: str
    exits: int = msgspec.field(name="deaths")
    last_exit: str = msgspec.field(name="last_death")

    @property
    def origin(self) -> Origin:
        return Origin(Partition(self.topic, self.partition), self.offset)

    @property
    def is_condemned(self) -> bool:
        """Whether no worker may take the envelope any more."""
        return self.exits >= EXITS_OF_ONE


class Verdict(NamedTuple):
    """What an exit counts for: the envelope that is blamed, if it is known, and the suspect that it is, if that could be written.

    `is_progress` is whether the exit brings a dead letter nearer.
    """

    blamed: InFlightEnvelope | None
    suspect: Suspect | None
    is_progress: bool


class Suspects:
    """The files in `suspects/` of the run directory. The supervisor counts exits; workers read the files and delete them.

    A full disk is logged, and does not end the service.
    """

    def __init__(self, run_directory: Path) -> None:
        self._directory = run_directory / "suspects"

    def judge(self, in_flight: Sequence[InFlightEnvelope], how: str) -> Verdict:
        """Count one more exit of a worker with these envelopes in flight, for the one that caused it.

        With several it is the one that was a suspect before, because calls of suspects are made alone. Otherwise the exit counts
        for none, and all become suspects.
        """
        known = in_flight if len(in_flight) == 1 else [each for each in in_flight if self._find(each) is not None]
        if len(known) == 1:
            suspect = self.count(known[0], how)
            return Verdict(known[0], suspect, suspect is not None and suspect.exits <= EXITS_OF_ONE)
        added = [self._note(each, 0, how) for each in in_flight if each not in known]
        return Verdict(None, None, any(each is not None for each in added))

    def count(self, in_flight: InFlightEnvelope, how: str) -> Suspect | None:
        """Count one more exit of a worker with this envelope in flight. None if that could not be made durable."""
        known = self._find(in_flight)
        return self._note(in_flight, 1 if known is None else known.exits + 1, how)

    def _find(self, in_flight: InFlightEnvelope) -> Suspect | None:
        known = self._read(self._path(in_flight.origin))
        return known if known is not None and known.identity == in_flight.identity else None

    def _note(self, in_flight: InFlightEnvelope, exits: int, how: str) -> Suspect | None:
        (topic, number), offset = in_flight.origin
        suspect = Suspect(topic, number, offset, in_flight.unit, in_flight.kind, in_flight.identity, exits, how)
        try:
            self._write(suspect)
        except OSError as error:
            _log.warning(
                "%s cannot be written, so this exit is not counted for the record: %s", self._path(in_flight.origin), error
            )
            return None
        return suspect

    def find_all(self) -> Mapping[Origin, Suspect]:
        """Return all suspects; unreadable files are skipped."""
        try:
            names = os.listdir(self._directory)
        except OSError:
            return {}
        found = [self._read(self._directory / name) for name in names if name.endswith(".json")]
        return {each.origin: each for each in found if each is not None}

    def forget(self, suspect: Suspect) -> None:
        with suppress(OSError):
            self._path(suspect.origin).unlink(missing_ok=True)

    def _path(self, origin: Origin) -> Path:
        """Return the file of an envelope. Its name has 50 characters of the topic: a topic may have 249, a file's name 255 bytes,
        and all records of a service are of one topic.
        """
        (topic, number), offset = origin
        return self._directory / f"{Origin(Partition(topic[:50], number), offset)}.json"

    def _read(self, path: Path) -> Suspect | None:
        try:
            return msgspec.json.decode(path.read_bytes(), type=Suspect)
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return None

    def _write(self, suspect: Suspect) -> None:
        make_private_directory(self._directory)
        path = self._path(suspect.origin)
        replace_durably(path, msgspec.json.format(msgspec.json.encode(suspect)))
        self._remove_oldest()

    def _remove_oldest(self) -> None:
        by_age = sorted((_changed_at(each), each) for each in self._directory.iterdir())
        for _, each in by_age[:-_MOST]:
            each.unlink(missing_ok=True)


def _changed_at(path: Path) -> int:
    """Return when a file changed; 0 if another worker has removed it meanwhile."""
    try:
        return path.stat().st_mtime_ns
    except FileNotFoundError:
        return 0
