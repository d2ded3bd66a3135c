"""What the console costs an idle service: `python -m benchmarks.console_cost --seconds 600`.

A service on files runs twice, without the console and with it. With it, its metrics are scraped each second, and its first page
is fetched every ten seconds. It prints the CPU time of the console as a share of one core, and that of the worker, whose ratio
shows whether the console costs it anything.
"""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic, sleep

import httpx

_TICKS = os.sysconf("SC_CLK_TCK")
_HTTP = "payment-status-notification.http"
_PROGRAM = (sys.executable, "-m", "notification_service")
MAX_SHARE = 0.02
"""The goal: at most this share of one core, over ten minutes."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=int, default=60, help="how long each of the two runs (default: %(default)s)")
    seconds = parser.parse_args().seconds
    alone, _ = run(seconds, is_enabled=False)
    beside, console = run(seconds, is_enabled=True)
    print(f"worker without the console  {100 * alone:6.2f} % of a core")
    print(f"worker beside the console   {100 * beside:6.2f} % of a core, ratio {beside / alone:.2f}")
    print(f"console, scraped            {100 * console:6.2f} % of a core (goal: {100 * MAX_SHARE:g} %)")
    return 0


def run(seconds: int, *, is_enabled: bool) -> tuple[float, float]:
    """Return the shares of a core of the worker and of the console."""
    with TemporaryDirectory(prefix="resequencer-benchmark-") as directory:
        told = [f"{_HTTP}.enabled={str(is_enabled).lower()}", f"{_HTTP}.port=0", f"{_HTTP}.metrics.port=0"]
        arguments = ["--set", *told]
        subprocess.run([*_PROGRAM, "start", *arguments], cwd=directory, check=True, capture_output=True)
        try:
            return _measure(Path(directory) / "run" / "application", seconds, is_enabled=is_enabled)
        finally:
            subprocess.run([*_PROGRAM, "stop", *arguments], cwd=directory, check=True, capture_output=True)


def _measure(run_directory: Path, seconds: int, *, is_enabled: bool) -> tuple[float, float]:
    worker = json.loads((run_directory / "status.json").read_text())["worker_process_id"]
    served = json.loads((run_directory / "console.json").read_text()) if is_enabled else None
    console = served["process_id"] if served else None
    sleep(5)  # What a start costs is not asked.
    begun, before = monotonic(), (_cpu(worker), _cpu(console))
    with httpx.Client() as client:
        for second in range(seconds):
            if served:
                client.get(f"{served['urls']['metrics']}").raise_for_status()
                if second % 10 == 0:
                    client.get(served["urls"]["console"]).raise_for_status()
            sleep(max(0.0, begun + second + 1 - monotonic()))
    elapsed = monotonic() - begun
    return (_cpu(worker) - before[0]) / elapsed, (_cpu(console) - before[1]) / elapsed


def _cpu(process: int | None) -> float:
    if process is None:
        return 0.0
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


if __name__ == "__main__":
    sys.exit(main())
