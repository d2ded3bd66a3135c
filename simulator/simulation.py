"""Writes the simulated envelopes as input of the file transport, and what is expected to come of them."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from random import Random
from tempfile import SpooledTemporaryFile
from typing import BinaryIO, NamedTuple

import msgspec

from connectors.file_lines import Line, encode_line, partition_of
from connectors.port import TransportRefused
from simulator.disorder import Disordered, Fate, Rates, disordered
from simulator.expectation import Expected, ExpectedGarbage
from simulator.garbage import draw_garbage
from simulator.input_files import InputFiles
from simulator.pain001 import SinglePayment, read_payments
from simulator.plan import Plan
from simulator.unit_arrivals import UnitArrivals
from simulator.units import SimulatedUnit, simulate_unit

UNITS_AT_ONCE = 50
"""So many payments are under way at any time; their envelopes come mixed."""

_SPOOLED_BYTES = 16 * 1024 * 1024
"""Late lines beyond this wait on disk."""

Progress = Callable[[int, int], None]
"""Told how many units are done, of how many."""

Pause = Callable[[int], None]
"""Lets so many milliseconds pass."""


class Summary(msgspec.Struct, frozen=True):
    """What was written. `envelopes` counts those that happened, `lines` what is in the files, garbage included.

    `out_of_order` counts the envelopes that arrived after a later one of their unit.
    """

    seed: int
    units: int
    envelopes: int
    lines: int
    out_of_order: int
    duplicates: int
    lost: int
    late: int
    garbage: int
    notifications: int


class _Place(NamedTuple):
    """One envelope of a unit that is under way."""

    unit: UnitArrivals
    at: int


def simulate(plan: Plan, in_directory: Path, expected_file: Path, progress: Progress, pause: Pause) -> Summary:
    """Append the plan's lines to the partition files of `in_directory` and what they should lead to to `expected_file`.

    All but the late lines are written as fast as they can be; then, if there are late ones, `pause` is called once and
    they follow. Memory holds the window and the payments under way, whatever the number of units.

    Raises:
        Pain001Refused: A pain.001 file cannot be used; nothing was written.
        TransportRefused: The files cannot be written.
    """
    payments = [payment for file in plan.pain001 for payment in read_payments(file)]
    try:
        with ExitStack() as stack:
            files = stack.enter_context(InputFiles(in_directory, plan.partitions))
            expected = stack.enter_context(_open_expected(expected_file))
            late_lines = stack.enter_context(SpooledTemporaryFile(max_size=_SPOOLED_BYTES))
            run = _Run(plan, files, expected, late_lines)
            run.write(payments, progress)
            files.flush()
            expected.flush()
            if run.has_late_lines:
                pause(plan.late_after_ms)
                run.write_late()
            return run.summary()
    except OSError as error:
        where = str(error.filename or f"{expected_file} or a temporary file")
        raise TransportRefused(where, f"{error.strerror or error}; what was written so far stays") from error


class _Run:
    """One simulation: where its lines go, and the count of them."""

    def __init__(self, plan: Plan, files: InputFiles, expected: BinaryIO, late_lines: SpooledTemporaryFile[bytes]) -> None:
        self._plan = plan
        self._files = files
        self._expected = expected
        self._late_lines = late_lines
        self._counts = dict.fromkeys(Summary.__struct_fields__, 0) | {"seed": plan.seed}
        self._garbage_rng = _rng(plan, "garbage")

    @property
    def has_late_lines(self) -> bool:
        return self._late_lines.tell() > 0

    def write(self, payments: Sequence[SinglePayment], progress: Progress) -> None:
        plan = self._plan
        rates = Rates(plan.duplicates, plan.losses, plan.late)
        stream = _mixed(plan, payments)
        every = max(1, plan.units // 500)
        for copy in disordered(stream, window=plan.window, rates=rates, rng=_rng(plan, "disorder")):
            self._write_copy(copy)
            if self._garbage_rng.random() < plan.garbage:
                self._write_garbage()
            if copy.item.unit.is_complete:
                self._finish(copy.item.unit)
                if self._counts["units"] % every == 0 or self._counts["units"] == plan.units:
                    progress(self._counts["units"], plan.units)

    def write_late(self) -> None:
        self._late_lines.seek(0)
        for entry in self._late_lines:
            partition, _, line = entry.partition(b" ")
            self._append(int(partition), line)
        self._files.flush()

    def summary(self) -> Summary:
        return Summary(**self._counts)

    def _write_copy(self, copy: Disordered[_Place]) -> None:
        unit, at = copy.item
        unit.came(at, copy.fate, copies=copy.copies)
        if copy.fate is Fate.LOST:
            return
        envelope = unit.simulated.envelopes[at]
        key = unit.simulated.expected.unit.encode()
        line = encode_line(Line(envelope.value, key, envelope.headers))
        partition = partition_of(key, self._plan.partitions)
        if copy.fate is Fate.LATE:
            self._late_lines.write(b"%d %b" % (partition, line))
        else:
            self._append(partition, line)

    def _write_garbage(self) -> None:
        garbage = draw_garbage(self._garbage_rng, f"sim-{self._plan.seed}-garbage-{self._counts['garbage']}")
        partition = partition_of(garbage.key, self._plan.partitions)
        offset = self._append(partition, garbage.line)
        self._expect(ExpectedGarbage(garbage.kind, partition, offset, garbage.reason.value))
        self._counts["garbage"] += 1

    def _append(self, partition: int, line: bytes) -> int:
        self._counts["lines"] += 1
        return self._files.append(partition, line)

    def _finish(self, unit: UnitArrivals) -> None:
        partition = partition_of(unit.simulated.expected.unit.encode(), self._plan.partitions)
        expected = unit.expectation(partition)
        self._expect(expected)
        counts, envelopes = self._counts, expected.envelopes
        counts["units"] += 1
        counts["envelopes"] += len(envelopes)
        counts["out_of_order"] += unit.count_out_of_order()
        counts["duplicates"] += sum(each.duplicates for each in envelopes)
        counts["lost"] += sum(each.is_lost for each in envelopes)
        counts["late"] += sum(each.late for each in envelopes)
        counts["notifications"] += sum(
            process.notification_id is not None for each in envelopes if not each.is_lost for process in each.processes
        )

    def _expect(self, expected: Expected) -> None:
        self._expected.write(msgspec.json.encode(expected) + b"\n")


def _mixed(plan: Plan, payments: Sequence[SinglePayment]) -> Iterator[_Place]:
    """The envelopes of all units, of each in its true order, as if `UNITS_AT_ONCE` payments went on side by side."""
    rng = _rng(plan, "mix")
    active: list[Iterator[_Place]] = []
    started = 0
    while active or started < plan.units:
        while len(active) < UNITS_AT_ONCE and started < plan.units:
            active.append(_places(simulate_unit(plan, payments, started)))
            started += 1
        chosen = rng.randrange(len(active))
        place = next(active[chosen], None)
        if place is not None:
            yield place
        else:
            active[chosen] = active[-1]
            active.pop()


def _places(simulated: SimulatedUnit) -> Iterator[_Place]:
    unit = UnitArrivals(simulated)
    return (_Place(unit, at) for at in range(len(simulated.envelopes)))


def _rng(plan: Plan, purpose: str) -> Random:
    """Chance of its own for each purpose: another rate of one thing leaves the others as they were."""
    return Random(f"{plan.seed}/{purpose}")  # noqa: S311  # A simulation, and it must repeat itself.


def _open_expected(path: Path) -> BinaryIO:
    path.parent.mkdir(parents=True, exist_ok=True)
    return path.open("ab")
