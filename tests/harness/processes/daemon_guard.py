"""Ends the daemons of a killed test run, because no other process is left to stop them."""

import atexit
import os
import signal
import subprocess
import sys
from collections.abc import Iterable
from contextlib import suppress
from functools import cache
from pathlib import Path

from notification_service.supervision.locks import find_holder


def end_with_this_process(run_directory: Path) -> None:
    """Make sure that this daemon is killed when this process ends, in whatever way it ends."""
    guard = _guard()
    assert guard.stdin is not None
    guard.stdin.write(f"{run_directory.absolute()}\n".encode())
    guard.stdin.flush()


@cache
def _guard() -> "subprocess.Popen[bytes]":
    """Start the guard. It reads from a pipe that the kernel closes with this process. No signal of the terminal reaches it."""
    command = [
        sys.executable,
        "-P",
        __file__,
    ]  # The directory of this file contains one with the name of a package that it needs.
    guard = subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True)
    atexit.register(guard.communicate)
    return guard


def keep_watch(lines: Iterable[str]) -> None:
    """Read directories until the writing process ends, then kill their daemons. A supervisor and its workers are
    one process group.
    """
    for directory in {Path(line.removesuffix("\n")) for line in lines}:
        holder = find_holder(directory)
        if holder is not None and holder.isdecimal():
            with suppress(ProcessLookupError):
                os.killpg(int(holder), signal.SIGKILL)


if __name__ == "__main__":
    keep_watch(sys.stdin)
