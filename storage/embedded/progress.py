"""The progress of a partition in the embedded storage, for programs that do not own it."""

from pathlib import Path
from typing import NamedTuple

from resequencer.record import Partition
from storage.embedded.view import committed

_OLDEST_STASHED = "SELECT MIN(arrived) FROM stash JOIN units ON units.id = unit_id WHERE partition = ?"


class Progress(NamedTuple):
    """The progress at one commit. Every record below `next_offset` is handled, or stashed at `oldest_stashed` or behind it.

    What the last commits took out of the stash may count as stashed.

    The output of handled records has numbers up to `highest_number`. Whether it is published, only the transport knows.
    """

    next_offset: int
    highest_number: int
    oldest_stashed: int | None


def find_progress(file: Path, partition: Partition) -> Progress | None:
    """Return the progress of a partition, None if nothing was ever committed.

    Changes neither the file nor its log, because a service may be using them.

    Raises:
        StorageRefused: The file is damaged or of another format.
        StorageUnavailable: The file does not answer.
    """
    with committed(file, partition) as found:
        header = None if found is None else found.tail.header
        if found is None or header is None or header.next_offset is None:
            return None
        stashed = {offset for each in found.tail.units.values() for offset in each.added}
        stashed |= {each for (each,) in found.connection.execute(_OLDEST_STASHED, (found.key,)) if each is not None}
        return Progress(header.next_offset, header.highest_number, min(stashed, default=None))
