"""Decides when an output file is full, how it is renamed, and how many rotated files are kept."""

import logging
from collections.abc import Mapping

from notification_service.connectors.files.operations import FileOperations, translated
from notification_service.connectors.files.output import Numbers, OutputFile
from notification_service.connectors.files.positions import FoundNumbers, find_number
from notification_service.connectors.files.rotated_names import find_rotated, rotated_path
from notification_service.connectors.files.scan import scan
from notification_service.connectors.files.settings import FileSettings

_LOG = logging.getLogger("resequencer.connectors")


class Rotation:
    """The rotation of one directory's outputs. `last` holds the number of the last rotated file, by the output's name."""

    def __init__(self, settings: FileSettings, files: FileOperations) -> None:
        self._settings = settings
        self._files = files
        self.last: dict[str, int] = {}

    def go_on(self, last: Mapping[str, int]) -> None:
        """Continue behind these numbers, which the stored positions hold."""
        self.last = dict(last)

    def is_full(self, output: OutputFile) -> bool:
        return self._settings.rotate_bytes is not None and output.length >= self._settings.rotate_bytes

    def rotate(self, output: OutputFile) -> None:
        """Rename the output to a number that was never used.

        Before the call, the caller has durably stored what was published; after the call, it stores the new length.
        """
        path = output.path
        with translated(path.parent):
            number = 1 + max([self.last.get(path.name, 0), *(each.number for each in find_rotated(path))])
        target = rotated_path(path, number)
        output.move_to(target)
        self.last[path.name] = number
        _LOG.info("%s was full and was renamed to %s", path, target.name)

    def trim(self) -> None:
        """Delete rotated notifications beyond those to keep. Log a file that cannot be deleted; the next call tries it again."""
        kept = self._settings.notifications_kept
        if kept is None:
            return
        path = self._settings.out_directory / f"{self._settings.notifications_name}.jsonl"
        try:
            for each in find_rotated(path)[:-kept]:
                self._files.unlink(each.path)
        except OSError as error:
            _LOG.warning("cannot delete rotated notifications beyond the last %d: %s", kept, error.strerror or error)

    def last_numbers(self, output: OutputFile) -> Numbers:
        """Return the numbers in the last rotated file: what was published just before, if no positions are stored."""
        numbers = FoundNumbers()
        with translated(output.path.parent):
            newest = find_rotated(output.path)[-1:]
        for each in newest:
            for line in scan(each.path, self._files):
                if (found := find_number(line.content)) is not None:
                    numbers.add(*found)
        return numbers.by_partition()
