"""The notifications of a unit on Kafka, from the archive of the topics."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from urllib.parse import unquote, urlsplit

from notification_service.console.sent_notifications import left_elsewhere, left_notification, left_unknown
from notification_service.console.unit_story import Left
from notification_service.jobs.topic_archive.local_reading import find_records
from resequencer.clock import instant_text
from resequencer.errors import ResequencerError
from resequencer.printable import printable


def find_left_in(location: str, topic: str) -> Callable[[str, float], Left]:
    """Return how to look for what left in an archive at this path or URL. Of URLs, only `file:` ones are read.

    The text of another URL is not shown, because it may have a password in it.
    """
    path = find_path(location)
    if path is None:
        return partial(left_elsewhere, location.partition("://")[0])
    return ArchivedOutput(path, topic).find_left


def find_path(location: str) -> Path | None:
    """Return the path of an archive at this path or `file:` URL; None for another URL."""
    scheme, separator, _ = location.partition("://")
    if not separator:
        return Path(location)
    return Path(unquote(urlsplit(location).path)) if scheme == "file" else None


class ArchivedOutput:
    """Reads the archive of the topic of notifications at a path, if there is one."""

    def __init__(self, location: Path, topic: str) -> None:
        self._location = location
        self._topic = topic

    def find_left(self, unit: str, max_seconds: float) -> Left:
        """Return the unit's notifications that were archived. Those that left since are not known. Never raises."""
        if not self._location.is_dir():
            return left_unknown(unit, max_seconds)
        try:
            found = find_records(self._location, self._topic, unit.encode(), max_seconds)
        except ResequencerError as error:
            return Left((), is_complete=False, searched=f"the archive could not be read: {printable(str(error))}")
        told = tuple(left_notification(each.headers, each.value) for each in found.records)
        if found.archived_at is None:
            return Left((), is_complete=False, searched=f"the archive in {self._location}, which is empty yet")
        part = "" if found.is_whole else " in part: the time for it is over"
        searched = f"the archive in {self._location}{part}; what left after {instant_text(found.archived_at)} is not in it"
        return Left(told, is_complete=False, searched=searched)
