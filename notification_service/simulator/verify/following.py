"""Compares the output with the expectations while both are being written."""

import fcntl
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import msgspec

from notification_service.connectors.line_format import Defect
from notification_service.judgement.order_check import ObservedOutcome
from notification_service.simulator.expectation import ExpectedGarbage, ExpectedUnit
from notification_service.simulator.generate.simulation import Pause
from notification_service.simulator.verify.observation import (
    ObservedNotification,
    TailedFile,
    read_dead_letter,
    read_notification,
)
from notification_service.simulator.verify.operator_orders import NOTHING, OrdersCheck, OrdersLog, check_orders, explain
from notification_service.simulator.verify.order_rules import DeadLetterCheck, Rules
from notification_service.simulator.verify.verdict import Deviation, Finding, Findings, Verdict
from notification_service.simulator.verify.verification import GroupFiles, add_lines, read_expected, read_outcomes, unit_findings

_AT_ONCE = 2_000
"""How many lines of a file are read before the units that they concern are compared."""

_BLOCKS = 20
"""How many times `_AT_ONCE` lines of output are read in one look: a second or two."""

_OPEN_UNITS = 20_000
"""With so many open units no more expectations are read, unless output has come that needs an explanation."""


_LATER = frozenset({Deviation.LOST})
"""What output that is still to come may mend."""

_LATER_WITH_ORDERS = _LATER | {
    Deviation.RELEASED_WITHOUT_ORDER,
    Deviation.FALSELY_MARKED,
    Deviation.NOT_MARKED,
    Deviation.OUT_OF_ORDER,
}
"""The same, and what the outcome of an order may explain, which may be read after the notification."""


class Compared(NamedTuple):
    """The three files that are compared."""

    expected: Path
    notifications: Path
    dead_letters: Path


class FollowedOrders(NamedTuple):
    """The file of the outcomes of orders, and what reads the orders themselves."""

    outcomes: Path
    read_log: Callable[[], OrdersLog]


class Look(msgspec.Struct, frozen=True):
    """The state after a look, in totals. `units` are complete; `outstanding` ones are open or not yet explained.

    Unless `has_read_all` of the expectations, more units are outstanding. `has_moved` is set if there was anything new,
    `is_behind` if more output is already there. When it `is_complete`, all expected output has come, each order has its outcome,
    and no process writes expectations any more. `outstanding_orders` is 0 until all expected output has come, and so is
    `outstanding_groups`, which counts facts and group reports.
    """

    notifications: int
    units: int
    outstanding: int
    dead_letters: int
    outstanding_dead_letters: int
    deviations: int
    has_read_all: bool
    has_moved: bool
    is_behind: bool
    is_complete: bool
    outstanding_orders: int = 0
    outstanding_groups: int = 0


class Following:
    """Follows one run of the service.

    A unit is compared in each look in which something of it came. Memory holds about 3 KB for each outstanding unit; they are at
    most `_OPEN_UNITS` if no output is ahead of its expectations. It also holds some 150 bytes for each complete unit, to detect
    doubled output, and 300 for each dead letter.
    """

    def __init__(
        self,
        rules: Rules,
        files: Compared,
        catch_up: Callable[[], None] = lambda: None,
        orders: FollowedOrders | None = None,
        groups: GroupFiles | None = None,
    ) -> None:
        """`catch_up` updates the files if they are copies of topics. `orders` is None if the service takes no orders, `groups` if
        it does not count the payments of messages.
        """
        self._rules = rules
        self._catch_up = catch_up
        self._expected, self._notifications, self._dead_letters = map(TailedFile, files)
        self._open: dict[str, bytes] = {}
        self._seen: dict[str, list[ObservedNotification]] = {}
        self._unexplained: set[str] = set()
        self._done: set[str] = set()
        self._touched: set[str] = set()
        self._dead_letter_check = DeadLetterCheck(rules)
        self._findings = Findings()
        self._orders = orders
        self._outcome_lines = None if orders is None else TailedFile(orders.outcomes)
        self._outcomes: list[ObservedOutcome] = []
        self._explained = NOTHING
        self._checked: OrdersCheck | None = None
        self._groups = None if groups is None else groups.check
        self._group_lines = () if groups is None else tuple(map(TailedFile, groups.files))
        self._are_groups_ended = False
        self._expectations = self._count = self._incomplete = self._late = 0
        self._found = self._others = 0

    def look(self) -> Look:
        """Read and compare all that is new.

        Raises:
            TransportRefused: A file cannot be read or was cut, or the expectations are damaged.
        """
        before = self._progress
        self._catch_up()
        is_behind = all(self._read_output() for _ in range(_BLOCKS))
        is_behind = self._read_outcomes() or is_behind
        is_behind = self._read_groups() or is_behind
        # In this order: output that has come is in the expectations by now, unless they are still being written.
        is_being_written = self._probe_lock()
        is_all_read = self._explain()
        is_final = is_all_read and not is_being_written and not is_behind
        if is_final:
            self._refuse_unexplained()
        outstanding, missing_dead_letters = len(self._open) + len(self._unexplained), self._dead_letter_check.outstanding
        missing_dead_letters += self._dead_letter_check.differing_orders(self._explained.dead_letters)
        has_all = is_final and bool(self._done) and not outstanding and not missing_dead_letters
        orders = self._check_orders(is_final=False) if has_all else 0
        groups = self._check_groups(is_complete=not orders) if has_all else 0
        return Look(
            self._count,
            len(self._done),
            outstanding,
            self._dead_letter_check.count,
            missing_dead_letters,
            self._findings.total,
            is_all_read,
            self._progress != before,
            is_behind,
            has_all and not orders and not groups,
            orders,
            groups,
        )

    def give_up(self) -> None:
        """End the comparison without further output: all that is outstanding is lost."""
        while self._read_expected():
            self._compare(is_final=True)
        self._touched.update(self._open)
        self._compare(is_final=True)
        self._refuse_unexplained()
        self._dead_letter_check.end(self._findings)
        self._dead_letter_check.end_orders(self._explained.dead_letters, self._findings)
        self._check_orders(is_final=True)
        self._end_groups()

    def verdict(self) -> Verdict:
        """Return the verdict so far."""
        return Verdict(
            self._rules.strategy,
            len(self._done),
            self._count,
            self._incomplete,
            self._late,
            self._dead_letter_check.count,
            self._findings.counts(),
            self._findings.examples(),
            None if self._checked is None else self._checked.counts,
            None if self._groups is None else self._groups.counts(),
            self._found + len(self._open.keys() & self._seen.keys()),
            self._others,
        )

    def close(self) -> None:
        for each in (self._expected, self._notifications, self._dead_letters, self._outcome_lines, *self._group_lines):
            if each is not None:
                each.close()

    @property
    def _progress(self) -> tuple[int, ...]:
        groups = () if self._groups is None else self._groups.progress
        return self._expectations, self._count, self._dead_letter_check.count, len(self._outcomes), *groups

    # Reading

    def _read_output(self) -> bool:
        """Read and compare some of the new output; return whether there was any."""
        before = self._progress, self._findings.total
        for line in self._notifications.lines(_AT_ONCE):
            self._note(read_notification(line))
        for line in self._dead_letters.lines(_AT_ONCE):
            dead_letter = read_dead_letter(line)
            if isinstance(dead_letter, Defect):
                self._findings.add(Finding(Deviation.UNREADABLE, "a dead letter", dead_letter.problem))
            else:
                self._dead_letter_check.came(dead_letter, self._findings)
        has_moved = (self._progress, self._findings.total) != before
        if has_moved:
            self._explain()
        return has_moved

    def _read_outcomes(self) -> bool:
        """Read some of the new outcomes of orders; return whether there were any. They may explain any open unit."""
        if self._outcome_lines is None:
            return False
        before = len(self._outcomes)
        self._outcomes += read_outcomes(self._outcome_lines.lines(_AT_ONCE), self._findings)
        if len(self._outcomes) == before:
            return False
        self._explained = explain(self._outcomes)
        self._touched.update(self._open)
        return True

    def _read_groups(self) -> bool:
        """Read some of the new facts and reports; return whether there were any."""
        if self._groups is None:
            return False
        before = self._groups.progress
        add_lines(self._groups, *(each.lines(_BLOCKS * _AT_ONCE) for each in self._group_lines))
        return self._groups.progress != before

    def _check_groups(self, *, is_complete: bool) -> int:
        """Return how many facts and reports are outstanding. If none is and all else `is_complete`, compare them."""
        if self._groups is None or self._are_groups_ended:
            return 0
        outstanding = self._groups.outstanding()
        if is_complete and not outstanding:
            self._end_groups()
        return outstanding

    def _end_groups(self) -> None:
        if self._groups is not None and not self._are_groups_ended:
            self._are_groups_ended = True
            self._groups.end(self._findings, self._explained.disturbed)

    def _check_orders(self, *, is_final: bool) -> int:
        """Compare orders and outcomes, and return how many outcomes are outstanding. A missing one is a finding if `is_final`."""
        if self._orders is None:
            return 0
        self._checked = check_orders(self._orders.read_log(), self._outcomes)
        for each in self._checked.findings:
            if is_final or each.deviation is not Deviation.ORDER_WITHOUT_OUTCOME:
                self._findings.add(each)
        return self._checked.open

    def _note(self, observed: ObservedNotification | Defect) -> None:
        if isinstance(observed, Defect):
            self._findings.add(Finding(Deviation.UNREADABLE, "a notification", observed.problem))
            return
        self._count += 1
        self._incomplete += observed.incomplete is not None
        self._late += observed.is_late
        unit = observed.unit
        if unit in self._done:
            if not observed.is_possible_duplicate:
                what = f"{observed.named} came after all output of its unit had come"
                self._findings.add(Finding(Deviation.DOUBLED, unit, what))
            return
        self._seen.setdefault(unit, []).append(observed)
        (self._touched if unit in self._open else self._unexplained).add(unit)

    def _explain(self) -> bool:
        """Read expectations for the output, and compare; return whether all expectations were read."""
        while len(self._open) < _OPEN_UNITS or self._unexplained:
            is_more = self._read_expected()
            self._compare(is_final=False)
            if not is_more:
                return True
        self._compare(is_final=False)
        return False

    def _read_expected(self) -> bool:
        """Read some of the expectations; return whether there were any."""
        before = self._expectations
        for line in self._expected.lines(_AT_ONCE):
            self._expectations += 1
            expected = read_expected(line, self._expectations)
            if isinstance(expected, ExpectedGarbage):
                self._dead_letter_check.expect(expected, self._findings)
                continue
            if self._groups is not None:
                self._groups.expect(expected)
            if expected.unit not in self._done:
                # The undecoded line takes a third of the memory.
                self._open.setdefault(expected.unit, line)
                self._unexplained.discard(expected.unit)
                self._touched.add(expected.unit)
        return self._expectations != before

    def _probe_lock(self) -> bool:
        """Take the lock on the expectations for an instant, and return whether a simulation holds it."""
        try:
            with self._expected.path.open("rb") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except OSError:
            # The file is missing, or unreadable, in which case reading it raises the error.
            return False
        return False

    # Comparing

    def _compare(self, *, is_final: bool) -> None:
        """Compare the units with new lines. A unit with a deviation is closed, because any deviation ends the run."""
        for name in self._touched:
            expected = read_expected(self._open[name], 0)
            assert isinstance(expected, ExpectedUnit)
            found = list(unit_findings(expected, self._seen.get(name, ()), self._rules, self._explained))
            open_ones = _LATER if self._orders is None else _LATER_WITH_ORDERS
            counted = [each for each in found if is_final or each.deviation not in open_ones]
            for each in counted:
                self._findings.add(each)
            if counted or not found:
                del self._open[name]
                self._found += self._seen.pop(name, None) is not None
                self._done.add(name)
        self._touched.clear()

    def _refuse_unexplained(self) -> None:
        """Report the output of units that are not expected."""
        self._others += len(self._unexplained)
        for name in self._unexplained:
            for each in self._seen.pop(name):
                self._findings.add(Finding(Deviation.UNEXPECTED, name, f"{each.named}: no such unit"))
        self._unexplained.clear()
        self._dead_letter_check.refuse_early(self._findings)


class Watch(NamedTuple):
    """The interval between looks, and how long to wait without progress while something is outstanding."""

    interval_ms: int
    longest_wait_ms: int


def keep_watch(following: Following, watch: Watch, now: Callable[[], int], pause: Pause, say: Callable[[Look], None]) -> Verdict:
    """Report each look to `say`; end when complete, at the first deviation, or after too long without progress.

    Output that is outstanding at such an end is lost. `now` is in milliseconds and never goes back.
    """
    moved_ms = now()
    while True:
        look = following.look()
        say(look)
        if look.is_complete or look.deviations:
            return following.verdict()
        if look.has_moved:
            moved_ms = now()
        elif now() - moved_ms >= watch.longest_wait_ms:
            following.give_up()
            return following.verdict()
        if not look.is_behind:
            pause(watch.interval_ms)
