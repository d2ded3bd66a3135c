"""Writes the simulated envelopes to the service's input, and the expectations to a file."""

import fcntl
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from itertools import chain, islice
from pathlib import Path
from random import Random
from tempfile import SpooledTemporaryFile
from typing import BinaryIO, NamedTuple

import msgspec

from guardian.ports import TransportRefused
from notification_service.connectors.line_format import Line, encode_line
from notification_service.simulator.expectation import Expected, ExpectedGarbage
from notification_service.simulator.generate.disorder import Chances, Disordered, Fate, Rates, disordered
from notification_service.simulator.generate.garbage import deal_garbage
from notification_service.simulator.generate.input import Input, InputFiles
from notification_service.simulator.generate.pain001 import read_payments
from notification_service.simulator.generate.plan import Bursts, Events, Keys, Plan
from notification_service.simulator.generate.shop import make_shop
from notification_service.simulator.generate.units import Maker, UnitArrivals, contradict, simulate_unit
from resequencer.dead_letter import DeadLetterReason
from storage.private_file import make_private

UNITS_AT_ONCE = 50
"""How many payments are active at any time; their envelopes are mixed."""


class Place(NamedTuple):
    """One envelope of an active unit."""

    unit: UnitArrivals
    at: int


def mixed(plan: Plan, maker: Maker, rng: Random) -> Iterator[Place]:
    """Yield envelopes as if `UNITS_AT_ONCE` payments ran in parallel.

    Each active payment is equally likely to come next. With `Keys.ZIPF` the weight is the payment's number of envelopes: one with
    500 comes fifty times as often as one with 10.
    """
    active: list[Iterator[Place]] = []
    weights: list[int] = []
    started = 0
    while active or started < plan.units:
        while len(active) < UNITS_AT_ONCE and started < plan.units:
            unit = UnitArrivals(maker.unit(started), maker.contradict, is_backlog=plan.is_backlog)
            active.append(_places(unit))
            weights.append(len(unit.simulated.envelopes))
            started += 1
        chosen = rng.randrange(len(active)) if plan.keys is Keys.UNIFORM else rng.choices(range(len(active)), weights)[0]
        place = next(active[chosen], None)
        if place is not None:
            yield place
        else:
            active[chosen], weights[chosen] = active[-1], weights[-1]
            active.pop()
            weights.pop()


def _places(unit: UnitArrivals) -> Iterator[Place]:
    return (Place(unit, at) for at in range(len(unit.simulated.envelopes)))


def make_maker(plan: Plan) -> Maker:
    """Return what makes the units of the plan.

    Raises:
        Pain001Refused: A pain.001 file cannot be used.
    """
    if plan.events is Events.SHOP:
        return make_shop(plan)
    payments = [payment for file in plan.pain001 for payment in read_payments(file)]
    garbage = partial(deal_garbage, unit=f"sim-{plan.seed}-garbage", max_value_bytes=plan.max_value_bytes)
    return Maker(partial(simulate_unit, plan, payments), contradict, garbage)


class Timetable:
    """When the next line is due, in milliseconds after the first one; without a rate always at once. Pure."""

    def __init__(self, rate: float | None) -> None:
        self._line_ms = 1_000 / rate if rate else 0.0
        self._due_ms = 0.0

    @property
    def due_ms(self) -> int:
        return int(self._due_ms)

    def add_line(self) -> None:
        self._due_ms += self._line_ms

    def add_silence(self, milliseconds: int) -> None:
        self._due_ms += milliseconds


Pause = Callable[[int], None]
"""Waits for so many milliseconds."""

_SHORTEST_MS = 20
"""The shortest pause. The writer flushes before each pause; so some lines are a little late, and flushes are rare."""

_MADE_UP_FOR_MS = 1_000


class Pacer:
    """Waits until a line is due, and counts lines. `now` is in milliseconds and never goes back.

    A delay of up to a second is made up for. After a longer one (the machine slept) all later lines are due that much later.
    """

    def __init__(self, now: Callable[[], int], pause: Pause) -> None:
        self._now = now
        self._pause = pause
        self._began_ms: int | None = None
        self._first_ms = self._last_ms = 0
        self.lines = 0

    @property
    def rate(self) -> float:
        """Lines per second so far, silences included; 0 before the second line."""
        taken_ms = self._last_ms - self._first_ms
        return (self.lines - 1) * 1_000 / taken_ms if taken_ms else 0.0

    def await_line(self, due_ms: int, flush: Callable[[], None]) -> None:
        """Wait until the line is due; call `flush` before any wait."""
        now = self._now()
        if self._began_ms is None:
            self._first_ms = self._began_ms = now
        ahead_ms = self._began_ms + due_ms - now
        if ahead_ms > 0:
            flush()
            self._pause(max(ahead_ms, _SHORTEST_MS))
            now = self._now()
        elif ahead_ms < -_MADE_UP_FOR_MS:
            self._began_ms = now - due_ms
        self._last_ms = now
        self.lines += 1


_SPOOLED_BYTES = 16 * 1024 * 1024
"""Late lines beyond this size are spooled to disk."""

_TAKEN, _REFUSED = b"+", b"-"

Progress = Callable[[int, int], None]
"""Called with the number of finished units, and of all units."""


class Summary(msgspec.Struct, frozen=True):
    """What was written. `envelopes` counts all that happened, lost ones too; `lines` all lines in the input, garbage too.

    `out_of_order` counts envelopes that arrived after a later one of their unit. `conflicts` counts lines that must be refused,
    because an earlier line has the same envelope id and other content.
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
    conflicts: int = 0


def simulate(
    plan: Plan, in_directory: Path, expected_file: Path, progress: Progress, pause: Pause, pacer: Pacer | None = None
) -> Summary:
    """Simulate into the partition files of a directory, as `simulate_into`."""
    return simulate_into(lambda: InputFiles(in_directory, plan.partitions), plan, expected_file, progress, pause, pacer)


def simulate_into(
    open_input: Callable[[], Input], plan: Plan, expected_file: Path, progress: Progress, pause: Pause, pacer: Pacer | None = None
) -> Summary:
    """Append the plan's lines to an input, and their expectations to `expected_file`.

    `pacer` times all but the late lines; without it they are written as fast as possible. If there are late lines, `pause` is
    called once, and they follow. Memory holds the window and the active payments, whatever the number of units.

    Raises:
        Pain001Refused: A pain.001 file cannot be used; nothing was written.
        TransportRefused, TransportUnavailable: The input or the file cannot be written.
    """
    maker = make_maker(plan)
    try:
        with ExitStack() as stack:
            target = stack.enter_context(open_input())
            expected = stack.enter_context(_open_expected(expected_file))
            late_lines = stack.enter_context(SpooledTemporaryFile(max_size=_SPOOLED_BYTES))
            run = _Run(plan, maker, target, expected, late_lines, pacer)
            run.write(progress)
            run.flush()
            if run.has_late_lines:
                if not plan.is_backlog:
                    pause(plan.late_after_ms)
                run.write_late()
            return run.summary()
    except OSError as error:
        where = str(error.filename or f"{expected_file} or a temporary file")
        raise TransportRefused(where, f"{error.strerror or error}; what was written so far stays") from error


class _Run:
    """One simulation: the destination of its lines, and their counts."""

    def __init__(
        self,
        plan: Plan,
        maker: Maker,
        target: Input,
        expected: BinaryIO,
        late_lines: SpooledTemporaryFile[bytes],
        pacer: Pacer | None,
    ) -> None:
        self._plan = plan
        self._maker = maker
        self._target = target
        self._expected = expected
        self._late_lines = late_lines
        self._pacer = pacer
        self._timetable = Timetable(plan.rate)
        self._counts = dict.fromkeys(Summary.__struct_fields__, 0) | {"seed": plan.seed}
        self._garbage_rng = _rng(plan, "garbage")
        self._garbage = maker.garbage(self._garbage_rng)

    @property
    def has_late_lines(self) -> bool:
        return self._late_lines.tell() > 0

    def write(self, progress: Progress) -> None:
        plan = self._plan
        rates = Rates(plan.duplicates, plan.losses, plan.late, plan.conflicts)
        chances = Chances(_rng(plan, "disorder"), _rng(plan, "conflicts"))
        for number, burst in enumerate(_bursts(mixed(plan, self._maker, _rng(plan, "mix")), plan.bursts)):
            if number and plan.bursts:
                self._timetable.add_silence(plan.bursts.silence_ms)
            for copy in disordered(burst, window=plan.window, rates=rates, chances=chances):
                self._write_copy(copy)
                if self._garbage_rng.random() < plan.garbage:
                    self._write_garbage()
                if copy.item.unit.is_complete:
                    self._finish(copy.item.unit, progress)

    def write_late(self) -> None:
        self._late_lines.seek(0)
        for entry in self._late_lines:
            partition, mark, line = entry.split(b" ", 2)
            self._append(int(partition), line, is_refused=mark == _REFUSED)
        self.flush()

    def flush(self) -> None:
        self._target.flush()
        self._expected.flush()

    def summary(self) -> Summary:
        return Summary(**self._counts)

    def _write_copy(self, copy: Disordered[Place]) -> None:
        unit, at = copy.item
        is_refused = unit.came(at, copy, self._timetable.due_ms)
        if copy.fate is Fate.LOST:
            return
        envelope = unit.envelope(at, contradicts=copy.contradicts)
        key = unit.simulated.key
        line = encode_line(Line(envelope.value, key, envelope.headers))
        partition = self._target.partition_of(unit.simulated.partition_key)
        if copy.fate is Fate.LATE:
            self._late_lines.write(b"%d %b %b" % (partition, _REFUSED if is_refused else _TAKEN, line))
        else:
            self._await_line()
            self._append(partition, line, is_refused=is_refused)

    def _write_garbage(self) -> None:
        garbage = next(self._garbage)
        partition = self._target.partition_of(garbage.key)
        self._await_line()
        self._counts["lines"] += 1
        offset = self._target.append_and_tell(partition, garbage.line)
        self._expect(ExpectedGarbage(garbage.kind, partition, offset, garbage.reason.value))
        self._counts["garbage"] += 1

    def _await_line(self) -> None:
        if self._pacer is not None:
            self._pacer.await_line(self._timetable.due_ms, self.flush)
        self._timetable.add_line()

    def _append(self, partition: int, line: bytes, *, is_refused: bool) -> None:
        """Append a line. A refused one is expected at its offset, which for late lines is known only now."""
        self._counts["lines"] += 1
        if not is_refused:
            self._target.append(partition, line)
            return
        offset, reason = self._target.append_and_tell(partition, line), DeadLetterReason.CONFLICTING_DUPLICATE.value
        self._expect(ExpectedGarbage(reason, partition, offset, reason))
        self._counts["conflicts"] += 1

    def _finish(self, unit: UnitArrivals, progress: Progress) -> None:
        partition = self._target.partition_of(unit.simulated.partition_key)
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
        if counts["units"] % max(1, self._plan.units // 500) == 0 or counts["units"] == self._plan.units:
            progress(counts["units"], self._plan.units)

    def _expect(self, expected: Expected) -> None:
        self._expected.write(msgspec.json.encode(expected) + b"\n")


def _bursts(stream: Iterator[Place], bursts: Bursts | None) -> Iterator[Iterator[Place]]:
    """Cut the stream into bursts; the caller consumes each before the next."""
    if bursts is None:
        yield stream
        return
    for first in stream:
        yield chain((first,), islice(stream, bursts.envelopes - 1))


def _rng(plan: Plan, purpose: str) -> Random:
    """Return a random generator for one purpose, so that changing one rate does not affect the others."""
    return Random(f"{plan.seed}/{purpose}")  # noqa: S311  # A simulation, and it must repeat itself.


def _open_expected(path: Path) -> BinaryIO:
    """Open the file with a lock, by which `verify --follow` knows that more expectations will come."""
    path.parent.mkdir(parents=True, exist_ok=True)
    file = make_private(path).open("ab")
    fcntl.flock(file, fcntl.LOCK_SH)
    return file
