"""The envelopes of the benchmarks, made by the simulator; the same seed gives the same bytes."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path

import msgspec

from benchmarks._runner import ROOT, directory
from notification_service.connectors.line_format import Line, decode_line

CONFIGURATION = ROOT / "conf" / "application.conf"
TOPIC = "IPF_PROCESSING_DATA"
SEED = 7
WINDOW = 2_000
DUPLICATES = "2%"
ENVELOPES_PER_UNIT = 7.9
"""Lines per payment, with 2 % duplicates: 200 000 lines are 25 000 units."""

_NOTHING_ELSE = ("--losses", 0, "--late", 0, "--garbage", 0)


class Workload(msgspec.Struct, frozen=True):
    """The lines of `file`, of about 1.1 KB each."""

    file: Path
    lines: int

    def read(self) -> list[bytes]:
        with self.file.open("rb") as file:
            return list(islice(file, self.lines))


@contextmanager
def made(
    envelopes: int, window: int = WINDOW, duplicates: str = DUPLICATES, disorder: tuple[object, ...] = _NOTHING_ELSE
) -> Iterator[Workload]:
    """Yield about so many envelopes in a temporary directory, which is removed afterwards; with `window` 0 in order.

    `disorder` are further arguments of the simulator.
    """
    with directory() as place:
        yield _make(place, envelopes, ("--window", window, "--duplicates", duplicates, *disorder))


def line_of(encoded: bytes) -> Line:
    """Return the key, the headers and the value of a line of a file."""
    read = decode_line(encoded)
    assert isinstance(read, Line)
    return read


def override(key: str, value: object) -> str:
    return f'payment-status-notification.{key}="{value}"'


def command(name: str, place: Path, *arguments: object) -> list[str]:
    """Return a command line of the service with its files in a directory."""
    service = ("--config", CONFIGURATION, "--set", override("run-directory", place))
    return [str(each) for each in (Path(sys.executable).with_name("resequencer"), name, *service, *arguments)]


@contextmanager
def serving(*overrides: str) -> Iterator[None]:
    """Run the service with these keys, from its start to its stop."""
    program = (sys.executable, "-m", "notification_service")
    subprocess.run([*program, "start", "--set", *overrides], check=True, capture_output=True)
    try:
        yield
    finally:
        subprocess.run([*program, "stop", "--set", *overrides], check=True, capture_output=True)


def _make(place: Path, envelopes: int, disorder: tuple[object, ...]) -> Workload:
    units = max(1, round(envelopes / ENVELOPES_PER_UNIT))
    simulate = command("simulate", place, "--units", units, "--seed", SEED, *disorder)
    subprocess.run(simulate, check=True, stdout=subprocess.DEVNULL)
    file = place / "in" / "partition-0.jsonl"
    with file.open("rb") as opened:
        return Workload(file, sum(1 for _ in opened))
