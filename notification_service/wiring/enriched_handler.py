"""The handler with the lookups. It switches to a new release between two cycles."""

import logging
from collections.abc import Callable

from notification_service.configuration.configuration import Configuration
from notification_service.configuration.schema import path_of
from notification_service.configuration.sections import Lookup
from notification_service.lookups.directory import LookupsDirectory
from notification_service.lookups.errors import NoRelease, ReleaseRefused
from notification_service.lookups.flow_profiles import ReleasedProfiles
from notification_service.lookups.follower import Follower
from notification_service.lookups.manifest import Pointer
from notification_service.lookups.release import Release, open_release, read_manifest
from notification_service.lookups.shapes import PROFILES
from notification_service.payments.enrichment import Enrichment
from notification_service.payments.lookups import Lookups
from notification_service.payments.notification_settings import NotificationSettings
from notification_service.payments.port import VersionedHandler
from resequencer.clock import Instant
from resequencer.envelope import DataEnvelope
from resequencer.errors import ConfigurationError
from resequencer.handler import Handled, Marks
from resequencer.payment_data import PaymentData

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

    def handle(self, envelope: DataEnvelope, data: PaymentData, marks: Marks, now: Instant) -> Handled:
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
