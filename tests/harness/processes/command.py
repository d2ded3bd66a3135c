"""A command of the service in the process of the test: it answers as a process of its own, and no interpreter is started."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import chdir, contextmanager, redirect_stderr, redirect_stdout
from io import BytesIO, TextIOWrapper
from pathlib import Path
from threading import current_thread, main_thread

from harness.packages import ROOT

from notification_service.command_line import main

_IN_A_PROCESS = {"audit", "archive-topics", "bridge", "console", "restart", "run", "start", "supervise"}
"""They go on until a signal, start Spark, or leave a process behind."""


def may_run_here(arguments: Sequence[str]) -> bool:
    """Return whether a command may run in this process: it ends by itself, and takes a moment."""
    goes_on = {"build", "run", "--follow"} & {*arguments}
    return arguments[0] not in _IN_A_PROCESS and not goes_on and current_thread() is main_thread()


def run_here(directory: Path, arguments: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """Run a command as in a process of its own, with this working directory."""
    out, error = (TextIOWrapper(BytesIO(), encoding="utf-8") for _ in range(2))
    with chdir(directory), _as_found(directory), redirect_stdout(out), redirect_stderr(error):
        try:
            code = int(main(arguments))
        except SystemExit as ended:  # What argparse refuses.
            code = int(ended.code or 0)
    return subprocess.CompletedProcess([*arguments], code, _text(out), _text(error))


@contextmanager
def _as_found(directory: Path) -> Iterator[None]:
    """Find modules in the directory first, as `python -m` does; forget a user's afterwards, and what the command has set."""
    before = set(sys.modules)
    path, handlers = sys.path.copy(), {each: signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)}
    sys.path.insert(0, str(directory))
    try:
        yield
    finally:
        sys.path[:] = path
        for number, handler in handlers.items():
            signal.signal(number, handler)
        for name in sys.modules.keys() - before:
            if directory != ROOT and str(getattr(sys.modules[name], "__file__", None)).startswith(f"{directory}/"):
                del sys.modules[name]


def _text(stream: TextIOWrapper) -> str:
    stream.flush()
    written = stream.buffer
    assert isinstance(written, BytesIO)
    return written.getvalue().decode()
