"""When an output is full, which name it gets then, and how many of them stay."""

import logging
from collections.abc import Mapping

from connectors.files.errors import translated
from connectors.files.numbers import FoundNumbers, find_number
from connectors.files.operations import FileOperations
from connectors.files.output import Numbers, OutputFile
from connectors.files.rotated_names import find_rotated, rotated_path
from connectors.files.scan import scan
from connectors.files.settings import FileSettings
from connectors.port import Channel

_LOG = logging.getLogger(__name__)


class Rotation:
    """Of the outputs of one directory. `last` holds the number of the last one rotated, by the output's name."""

    def __init__(self, settings: FileSettings, files: FileOperations) -> None:
        self._settings = settings
        self._files = files
        self.last: dict[str, int] = {}

    def go_on(self, last: Mapping[str, int]) -> None:
        """With the numbers after these, which the positions tell."""
        self.last = dict(last)

    def is_full(self, output: OutputFile) -> bool:
        return self._settings.rotate_bytes is not None and output.length >= self._settings.rotate_bytes

    def rotate(self, output: OutputFile) -> None:
        """Under a number that no other has or had. The caller has noted durably what left, and notes the new length."""
        path = output.path
        with translated(path.parent):
            number = 1 + max([self.last.get(path.name, 0), *(each.number for each in find_rotated(path))])
        target = rotated_path(path, number)
        output.move_to(target)
        self.last[path.name] = number
        _LOG.info("%s was full: it is %s now", path, target.name)

    def trim(self) -> None:
        """Delete the notifications that nobody wants to keep. What cannot be deleted is told, and tried again next time."""
        kept = self._settings.notifications_kept
        if kept is None:
            return
        path = self._settings.out_directory / f"{Channel.NOTIFICATIONS}.jsonl"
        try:
            for each in find_rotated(path)[:-kept]:
                self._files.unlink(each.path)
        except OSError as error:
            _LOG.warning("rotated notifications beyond the last %d cannot be deleted: %s", kept, error.strerror or error)

    def last_numbers(self, output: OutputFile) -> Numbers:
        """The numbers in the file that was rotated last: what left just before, where nothing else tells."""
        numbers = FoundNumbers()
        with translated(output.path.parent):
            newest = find_rotated(output.path)[-1:]
        for each in newest:
            for line in scan(each.path, self._files):
                if (found := find_number(line.content)) is not None:
                    numbers.add(*found)
        return numbers.by_partition()
