"""`resequencer logs`: the last lines of the service's log, and what follows."""

import os
import sys
from argparse import ArgumentParser, Namespace
from collections import deque
from pathlib import Path
from time import sleep
from typing import TextIO

from daemon.configuration import load
from daemon.exit_code import ExitCode
from daemon.service_log import NAME

_LINES = 50
_LOOK_SECONDS = 0.2


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--lines", type=int, default=_LINES, help="how many of the last lines (default: %(default)s)")
    parser.add_argument("--follow", action="store_true", help="go on with what comes, until interrupted")


def show_logs(arguments: Namespace) -> ExitCode:
    """1 if there is no log: the service was never started as a daemon."""
    path = load(arguments.config, arguments.overrides).notification.run_directory / NAME
    if not path.exists():
        sys.stderr.write(f"resequencer: {path} does not exist: the service was never started in the background\n")
        return ExitCode.NOT_SO
    file = _open(path)
    sys.stdout.writelines(deque(file, maxlen=max(0, arguments.lines)))
    sys.stdout.flush()
    while arguments.follow:
        file = _go_on(file, path)
    file.close()
    return ExitCode.DONE


def _go_on(file: TextIO, path: Path) -> TextIO:
    """Print what came; where the log was rotated meanwhile, go on in the new one."""
    lines = file.readlines()
    sys.stdout.writelines(lines)
    sys.stdout.flush()
    if lines or not path.exists() or os.fstat(file.fileno()).st_ino == path.stat().st_ino:
        sleep(_LOOK_SECONDS)
        return file
    file.close()
    return _open(path)


def _open(path: Path) -> TextIO:
    return path.open(encoding="utf-8", errors="replace")
