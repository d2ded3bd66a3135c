"""The output of the command `dead-letters`: lines, or one JSON array."""

import json
import sys
from collections.abc import Mapping
from types import TracebackType
from typing import Self

from resequencer.printable import printable


class DeadLetterReport:
    """Writes each outcome at once, so that a later failure cannot hide what was done."""

    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json
        self.count = 0

    def __enter__(self) -> Self:
        if self._as_json:
            sys.stdout.write("[")
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._as_json:
            sys.stdout.write("\n]\n")
        sys.stdout.flush()

    def tell(self, line: str, facts: Mapping[str, object]) -> None:
        """Write one outcome: `line` is for people and always printed as one line, `facts` is for programs."""
        if self._as_json:
            sys.stdout.write(",\n" if self.count else "\n")
            sys.stdout.write(json.dumps(facts))
        else:
            sys.stdout.write(printable(line) + "\n")
        self.count += 1
