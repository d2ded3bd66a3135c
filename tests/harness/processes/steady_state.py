"""The resources that a running service uses, sampled as an operator would see them, and whether they stay constant."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from statistics import median
from typing import NamedTuple

from harness.processes.operated_service import OperatedService

from notification_service.status.file import StatusFile
from notification_service.status.report import StatusReport

MB = 1_000_000
_ENOUGH_MINUTES = 5


class Allowance(NamedTuple):
    """How far the last median may be above the first: by this share of it, plus this amount.

    A metric that `follows_load` is as uneven as the load on a busy machine, unless it is measured over minutes.
    """

    share: float
    slack: float
    follows_load: bool = False


# The resident memory of a Python process moves by arenas of 1 MB, a database by the pages that are free at the moment.
FIGURES = {
    "worker memory (MB)": Allowance(0.05, 6),
    "supervisor memory (MB)": Allowance(0.05, 2),
    "worker file handles": Allowance(0, 3),
    "supervisor file handles": Allowance(0, 1),
    "actors": Allowance(0.15, 30, follows_load=True),
    "units that wait": Allowance(0.5, 20, follows_load=True),
    "database (MB)": Allowance(0.15, 1),
    "write-ahead log (MB)": Allowance(0.1, 2),
    "input on disk (MB)": Allowance(0.3, 3, follows_load=True),
    "notifications.jsonl (MB)": Allowance(0.5, 0.5),
    "positions.json (KB)": Allowance(0, 2),
    "status.json (KB)": Allowance(0, 5),
}


class SteadyState:
    """Samples of one service under its supervisor."""

    def __init__(self, service: OperatedService) -> None:
        self._service = service
        self._samples: dict[str, list[float]] = {name: [] for name in FIGURES}

    def sample(self) -> None:
        supervisor = int((self._service.run_directory / "lock").read_text())
        worker = _children(supervisor)[0]
        report = StatusFile(self._service.run_directory).find()
        assert report is not None
        for name, value in zip(FIGURES, self._figures(worker, supervisor, report), strict=True):
            self._samples[name].append(value)

    def grown(self, minutes: float) -> list[str]:
        """Return the metrics whose last quarter has a median above what the first allows, in a run of so many minutes."""
        grown = []
        for name, (first, _, _, last) in self.medians().items():
            share, slack, follows_load = FIGURES[name]
            if last > first * (1 + (2 if follows_load and minutes < _ENOUGH_MINUTES else share)) + slack:
                grown.append(f"{name}: {first:.1f} → {last:.1f}")
        return grown

    def medians(self) -> dict[str, list[float]]:
        """Return the medians of each quarter of the samples."""
        quarter = len(next(iter(self._samples.values()))) // 4
        assert quarter, "too few samples"
        return {
            name: [median(each[begin : begin + quarter]) for begin in range(0, 4 * quarter, quarter)]
            for name, each in self._samples.items()
        }

    def table(self) -> str:
        titles = ("1st quarter", "2nd quarter", "3rd quarter", "4th quarter", "least", "most")
        rows = [" " * 26 + "".join(f"{title:>13}" for title in titles)]
        for name, medians in self.medians().items():
            values = (*medians, min(self._samples[name]), max(self._samples[name]))
            rows.append(f"{name:26}" + "".join(f"{value:13.1f}" for value in values))
        return "\n".join(rows)

    def _figures(self, worker: int, supervisor: int, report: StatusReport) -> Sequence[float]:
        run, out = self._service.run_directory, self._service.out_directory
        return (
            _resident_bytes(worker) / MB,
            _resident_bytes(supervisor) / MB,
            len(os.listdir(f"/proc/{worker}/fd")),
            len(os.listdir(f"/proc/{supervisor}/fd")),
            report.units.active,
            report.units.waiting,
            _size(run / "state.db") / MB,
            _size(run / "state.db-wal") / MB,
            sum(each.stat().st_blocks * 512 for each in self._service.in_directory.glob("*.jsonl")) / MB,
            _size(out / "notifications.jsonl") / MB,
            _size(out / "positions.json") / 1_000,
            _size(run / "status.json") / 1_000,
        )


def _children(process: int) -> list[int]:
    return [int(each) for each in Path(f"/proc/{process}/task/{process}/children").read_text().split()]


def _resident_bytes(process: int) -> int:
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmRSS")).split()[1]) * 1024


def _size(path: Path) -> int:
    """Return the size of the file; 0 while it is being replaced."""
    with suppress(FileNotFoundError):
        return path.stat().st_size
    return 0
