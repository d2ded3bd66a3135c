"""Replays the service's own handler, with the lookups that each notification names.

Several tasks run in such a process, one after the other. It ends with the job, so the cache is never emptied.
"""

from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

from msgspec.structs import replace

from guardian.headers import AMOUNT, GROUP_ID, GROUP_TOTAL, NOTIFICATION_ID, mark_headers
from notification_service.events.pass_through import PassThrough
from notification_service.jobs.audit.unit_output import UnitOutput
from notification_service.lookups.directory import MANIFEST, LookupsDirectory
from notification_service.lookups.manifest import Pointer, is_version
from notification_service.lookups.release import Release, open_release
from notification_service.lookups.shapes import NoRelease, ReleaseRefused
from notification_service.payments.enrichment import Lookups
from notification_service.payments.envelope import DataEnvelope
from notification_service.payments.notification_settings import NotificationSettings
from notification_service.payments.payment_data import PaymentData
from notification_service.payments.port import VersionedHandler
from notification_service.payments.settings import HandlerSettings, make_handler
from resequencer.clock import Instant
from resequencer.errors import DeadLetterOrdered, EndedItsWorker, PermanentError, TooLarge
from resequencer.event import Event
from resequencer.handler import Handled, Marks
from resequencer.notification import Notification, notification_id

_opened: dict[tuple[Path, str], Release] = {}


def find_release(directory: Path, version: str) -> Release | None:
    """Return the release; None if the version is gone or damaged."""
    if (directory, version) not in _opened:
        if not is_version(version):
            return None
        lookups = LookupsDirectory(directory)
        try:
            content = (lookups.release(version) / MANIFEST).read_bytes()
            _opened[directory, version] = open_release(lookups, Pointer(version, sha256(content).hexdigest()))
        except (NoRelease, ReleaseRefused, OSError):
            return None
    return _opened[directory, version]


_OF_GROUP = frozenset({GROUP_ID, GROUP_TOTAL, AMOUNT})

UNKNOWN = b""
"""The value of a notification whose content cannot be known; such a value is not compared."""


class ReplayPassThrough:
    """Lets the records of the unit leave whose output is in `output`.

    That an event ended its worker, or that an operator ordered a dead letter, is taken from the output.
    """

    is_foreign = False

    def __init__(self) -> None:
        self._handler = PassThrough()
        self.output = UnitOutput()

    def handle(self, envelope: Event, data: object, marks: Marks, now: Instant) -> Handled:
        _refuse_as_in(self.output, envelope)
        return self._handler.handle(envelope, data, marks, now)


def _refuse_as_in(output: UnitOutput, envelope: Event) -> None:
    """Raise what only the output shows: it does not follow from the records."""
    if output.has_dead_letter(envelope.offset, EndedItsWorker.reason):
        raise EndedItsWorker("as its dead letter states")
    if output.is_dead_lettered_by_order(envelope.offset):
        raise DeadLetterOrdered("as its order states")


class ReplayHandler:
    """Handles the envelopes of the unit whose output is in `output`.

    A user's own target type is not called. The values that it made are unknown, and its refusal of an envelope is taken from the
    dead letter. A user's own handler is not called either; the process objects that it notified of are taken from the output.
    The same holds for notifications made with a version of the lookups that is gone. The headers of a payment's group are
    expected where the output has any of them: aggregation may have been off. With any target type, that an envelope ended its
    worker is taken from the dead letter, and that an operator ordered a dead letter from the order's outcome.
    """

    def __init__(self, settings: HandlerSettings, table: NotificationSettings, lookups: str) -> None:
        self._has_foreign_handler = settings.handler is not None or settings.data_handler is not None
        self.is_foreign = self._has_foreign_handler or ":" in settings.target_type
        ours = replace(settings, target_type="report", handler=None)
        self._settings = ours if self.is_foreign else settings
        self._lookups = Path(lookups)
        self._alone = {each: make_handler(replace(self._settings, makes_facts=each), table) for each in (False, True)}
        self._made: dict[tuple[str, bool], VersionedHandler | None] = {}
        self.output = UnitOutput()

    def handle(self, envelope: DataEnvelope, data: PaymentData, marks: Marks, now: Instant) -> Handled:
        """Return the notifications for the envelope.

        Without any in the output, return those on which all versions that may have been used agree.
        """
        _refuse_as_in(self.output, envelope)
        for refusal in (PermanentError, TooLarge) if self.is_foreign else ():
            if self.output.has_dead_letter(envelope.offset, refusal.reason):
                raise refusal("as its dead letter states")
        if self._has_foreign_handler:
            return self._believed(envelope, marks)
        seen = self.output.find_first(envelope.offset)
        if seen is not None:
            handler = self._find_handler(seen.version, names_group=any(name in _OF_GROUP for name, _ in seen.headers))
            handled = self._believed(envelope, marks) if handler is None else handler.handle(envelope, data, marks, now)
        else:
            handled = _agreed([each.handle(envelope, data, marks, now) for each in self._possible()])
        if not self.is_foreign:
            return handled
        unknown = tuple(replace(each, value=UNKNOWN) for each in handled.notifications)
        return replace(handled, notifications=unknown)

    def _believed(self, envelope: Event, marks: Marks) -> Handled:
        """Return one notification with unknown content for each process object that has one in the output.

        Of events that are no payments the handler chooses the indices, so each notification of theirs is believed.
        """
        made = []
        if isinstance(envelope, DataEnvelope):
            count = len(envelope.process_objects)
            identifiers = [notification_id(envelope.unit, envelope.event_id, index) for index in range(count)]
        else:
            identifiers = self.output.find_ids(envelope.offset)
        for identifier in identifiers:
            if self.output.find(identifier) is not None:
                marked = mark_headers(marks.incomplete, is_late=marks.late, is_ordered=marks.ordered)
                headers = ((NOTIFICATION_ID, identifier.encode()), *marked)
                made.append(Notification(identifier, envelope.unit, "", UNKNOWN, headers, envelope.record.origin))
        return Handled(tuple(made))

    def _possible(self) -> Iterator[VersionedHandler]:
        """Yield the handlers of the versions in the unit's other notifications; without any, that of the current version."""
        versions = self.output.versions or {self._find_current()}
        for version in sorted(versions, key=str):
            handler = self._find_handler(version)
            if handler is not None:
                yield handler

    def _find_current(self) -> str | None:
        try:
            return LookupsDirectory(self._lookups).get_current().version
        except (NoRelease, ReleaseRefused):
            return None

    def _find_handler(self, version: str | None, *, names_group: bool = False) -> VersionedHandler | None:
        """Return the handler with these lookups; None if the version is gone."""
        if version is None:
            return self._alone[names_group]
        if (version, names_group) not in self._made:
            release = find_release(self._lookups, version)
            made = None if release is None else self._alone[names_group].with_lookups(Lookups(release))
            self._made[version, names_group] = made
        return self._made[version, names_group]


def _agreed(each: list[Handled]) -> Handled:
    """Return the notifications that all have in common."""
    if not each:
        return Handled()
    common = set.intersection(*({made.notification_id for made in handled.notifications} for handled in each))
    return Handled(tuple(made for made in each[0].notifications if made.notification_id in common))
