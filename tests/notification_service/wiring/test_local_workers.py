"""Which lines of the log belong to a dump of threads."""

from __future__ import annotations

import faulthandler
from pathlib import Path
from threading import Event, Thread

from notification_service.wiring.local_workers import stacks_in


def test_only_stacks_are_taken_from_the_log_and_no_words_of_errors(tmp_path: Path) -> None:
    has_ended = Event()
    waiting = Thread(target=has_ended.wait)
    waiting.start()
    try:
        with (tmp_path / "dump").open("w+") as file:
            faulthandler.dump_traceback(file, all_threads=True)
            file.seek(0)
            dump = file.read()
    finally:
        has_ended.set()
        waiting.join()
    other = (
        "2026-03-28T23:33:55Z WARNING handling x failed: ValueError: DE89370400440532013000 is closed\n"
        "Traceback (most recent call last):\n"
        '  File "own.py", line 3, in make\n'
        "    raise ValueError(iban)\n"
        "ValueError: DE89370400440532013000 is closed\n"
    )
    found = stacks_in(other + dump + other)
    assert "DE89" not in found
    assert [line for line in dump.splitlines() if line.strip()] == [
        line for line in found.splitlines() if "own.py" not in line and line.strip()
    ]
    assert stacks_in(dump.replace("\n", " [slot=1]\n")).count("[slot=1]") == len([line for line in dump.splitlines() if line])
