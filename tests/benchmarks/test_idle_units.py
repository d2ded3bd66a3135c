"""The idle units of the benchmark are like those that the service leaves, whatever the storage."""

from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks._worker import in_process, made, on_files, run_through
from benchmarks.idle_units import Idle
from guardian.cycle import Cycle

pytestmark = pytest.mark.slow  # The simulator makes the envelopes in a process of its own.

MAKERS: list[Callable[[list[bytes], Path], Cycle]] = [
    lambda lines, directory: in_process(lines, directory)[0],
    lambda lines, directory: on_files(lines, directory).cycle,
]


@pytest.mark.parametrize("make", MAKERS)
def test_units_that_ended_are_samples_of_idle_ones(make: Callable[[list[bytes], Path], Cycle], tmp_path: Path) -> None:
    with made(3_000) as workload:
        lines = workload.read()
        cycle = make(lines, tmp_path)
        run_through(cycle, 1_500)
        idle = Idle(cycle, lines[:1_500])
        idle.store(10)
        idle.keep_alive(10)
    assert idle.bytes_each > 200
