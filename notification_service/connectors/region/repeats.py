"""Recognises records that came before, in the output of a sink that may send them again."""

from hashlib import blake2b
from pathlib import Path

from guardian.headers import DEAD_LETTER_AT
from notification_service.connectors.line_format import Defect, Line, decode_line

_BYTES = 8


class Repeats:
    """What came. A record comes again with the same key, headers and value, but a dead letter may tell another instant.

    `count` is how many came again. It takes about 60 bytes of memory for each record.
    """

    def __init__(self) -> None:
        self._seen: set[int] = set()
        self.count = 0

    def take(self, line: Line) -> bool:
        """Remember the record, and return whether it came for the first time."""
        digest = _digest(line)
        if digest in self._seen:
            self.count += 1
            return False
        self._seen.add(digest)
        return True

    def read(self, file: Path) -> None:
        """Remember all records of a file."""
        if file.exists():
            with file.open("rb") as lines:
                for each in lines:
                    line = decode_line(each)
                    if not isinstance(line, Defect):
                        self._seen.add(_digest(line))


def _digest(line: Line) -> int:
    headers = tuple(each for each in line.headers if each[0] != DEAD_LETTER_AT)
    return int.from_bytes(blake2b(repr((line.key, headers, line.value)).encode(), digest_size=_BYTES).digest())
