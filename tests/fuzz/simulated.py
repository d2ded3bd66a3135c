"""The lines of a short simulation: envelopes of a payment flow, and garbage of each kind. Most targets use them as seeds."""

from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from notification_service.simulator.generate.plan import Plan
from notification_service.simulator.generate.simulation import simulate


@cache
def simulated_lines(units: int = 12) -> tuple[bytes, ...]:
    """Return the shortest lines, without newline, because a fuzzer's inputs are limited in size."""
    with TemporaryDirectory() as name:
        directory = Path(name)
        simulate(_plan(units), directory / "in", directory / "expected.jsonl", lambda *_: None, lambda _: None)
        lines = [line for file in sorted((directory / "in").iterdir()) for line in file.read_bytes().splitlines()]
    return tuple(sorted((line for line in lines if len(line) < 8_192), key=len))


def _plan(units: int) -> Plan:
    return Plan(units=units, seed=1, garbage=0.5, duplicates=0.1, conflicts=0.1, losses=0, late=0, window=5)
