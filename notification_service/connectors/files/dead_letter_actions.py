"""`dead-letters-actions.jsonl`: the actions that operators took on dead letters. The file is append-only."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from guardian.ports import TransportRefused
from notification_service.connectors.dead_letters.actions import Action, Deed, EditProposed, EditRejected, LetterId
from notification_service.connectors.files.operations import FileOperations
from notification_service.connectors.files.output import OutputFile
from notification_service.connectors.files.scan import scan

FILE_NAME = "dead-letters-actions.jsonl"

_DECODER: msgspec.json.Decoder[Action] = msgspec.json.Decoder(Action)


class ActionsFile:
    """The log of actions beside `dead-letters.jsonl`. Only one process may append at a time; the caller holds a lock."""

    def __init__(self, directory: Path, files: FileOperations) -> None:
        self.path = directory / FILE_NAME
        self._files = files
        self._output = OutputFile(self.path, files)
        self._is_open = False

    def read(self) -> Iterator[Action]:
        """Yield all complete actions in order.

        Raises:
            TransportRefused: A line is no action, so it is unknown which dead letters were requeued.
        """
        for line in scan(self.path, self._files):
            try:
                yield _DECODER.decode(line.content)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                problem = f"the line at byte {line.start} is not an action ({error}). Restore the file"
                raise TransportRefused(str(self.path), problem) from error

    def last(self) -> dict[LetterId, Deed]:
        """Return the last deed on each dead letter that has one."""
        return {each.letter_id: each for each in self.read() if not isinstance(each, EditProposed | EditRejected)}

    def append(self, actions: Sequence[Action]) -> None:
        """Append the actions durably, all or none. A torn last line, left by a crash, is cut off first.

        Raises:
            TransportUnavailable: No space, or the disk fails; none of the actions counts.
        """
        if self._is_open:
            self._output.revisit()
        else:
            self._output.open(0)
            self._is_open = True
        self._output.append(b"".join(msgspec.json.encode(action) + b"\n" for action in actions))

    def close(self) -> None:
        self._output.close()
        self._is_open = False
