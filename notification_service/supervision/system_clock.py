"""The system's clocks, the only module that reads them for what is stored."""

import logging
import os
import time
from contextlib import suppress
from functools import cache
from pathlib import Path
from threading import Lock

import msgspec

from resequencer.clock import Belief, Instant, SteadyClock
from storage.private_file import replace_whole

_LOG = logging.getLogger("resequencer.supervisor")
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
# macOS counts a suspended machine in none of its clocks.
_PASSING = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class SystemClock:
    """The machine's wall clock."""

    def now(self) -> Instant:
        return time.time_ns() // 1_000_000


def passed_ms() -> int:
    """Return the milliseconds since the machine was started, with those in which it was suspended."""
    return time.clock_gettime_ns(_PASSING) // 1_000_000


def steady_clock(run_directory: Path, name: str, trusted_ms: int, *, keeps: bool) -> SteadyClock:
    """Return a clock that a jump of the machine's clock does not move at once.

    What is known of the clock is in `clock-NAME.json` of the run directory, for the next process of this name; it is written if
    `keeps`. A disk without room stops nothing.
    """
    path = run_directory / f"clock-{name}.json"
    is_off = False

    def keep(belief: Belief) -> None:
        nonlocal is_off
        was_off, is_off = is_off, belief.is_settled and belief.agreed_since == belief.seen
        if is_off and not was_off:
            _LOG.warning("the clock of %s has jumped: time continues as before until the clock agrees with it for a while", name)
        elif was_off and not is_off:
            _LOG.warning("the clock of %s agrees again; nothing is deleted by it until clock.trusted-after is over", name)
        with suppress(OSError):
            replace_whole(path, msgspec.json.encode(belief) + b"\n")

    keeper = keep if keeps else None
    return SteadyClock(SystemClock().now, passed_ms, _boot(), trusted_ms=trusted_ms, known=_find(path), keep=keeper, lock=Lock())


def _find(path: Path) -> Belief | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=Belief)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return None


@cache
def _boot() -> str:
    """Return what tells this run of the machine from others; where nothing does, no two processes agree."""
    try:
        return _BOOT_ID.read_text().strip()
    except OSError:
        return f"{os.getpid()}@{time.time_ns()}"
