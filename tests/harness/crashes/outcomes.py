"""The outcome of a simulated run, and the check whether it is allowed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable
from enum import StrEnum
from typing import NamedTuple

from harness.crashes.remembered import Remembered, names_in
from harness.crashes.told_marks import find_wrong_mark
from harness.service_under_test import Dead, Told
from harness.workloads.shuffled import Workload


class Forgets(StrEnum):
    """What is lost once beside the worker."""

    NOTHING = "crashes"
    DATABASE = "database"
    POSITIONS = "positions"


class Outcome(NamedTuple):
    """What came out, whether it may be, and how the worker was struck on the way.

    `remembered` is what had to be known on the way, `forgotten` how many units were forgotten as being idle for long enough.
    """

    told: tuple[Told, ...]
    dead: tuple[Dead, ...]
    crashes: int
    strikes: int
    steps: int
    trace: tuple[str, ...] = ()
    problem: str | None = None
    remembered: Remembered = Remembered()
    forgotten: int = 0


def judged(outcome: Outcome, expected: Outcome, forgets: Forgets) -> Outcome:
    """What is expected is what leaves where nothing happens and no unit is ever forgotten: of units that may have been forgotten
    between two envelopes, less is asked.
    """
    if outcome.problem is not None:
        return outcome
    problems = {
        Forgets.NOTHING: _find_difference,
        Forgets.DATABASE: find_loss,
        Forgets.POSITIONS: _find_difference_but_for_marked_ones,
    }
    problem = find_repetition(outcome) or problems[forgets](outcome, expected)
    return outcome._replace(problem=problem)


def with_true_marks(outcome: Outcome, work: Workload) -> Outcome:
    """What leaves when nothing happens may be marked wrongly, too."""
    told = [each for each in outcome.told if each.unit not in outcome.remembered.forgettable]
    return outcome._replace(problem=outcome.problem or find_wrong_mark(told, work.plan.strategy))


def find_repetition(outcome: Outcome) -> str | None:
    """What repeats is marked, unless its unit may have been forgotten."""
    dead: set[str] = set()
    for letter in outcome.dead:
        if letter.position in dead and not letter.is_possible_duplicate:
            return f"dead twice and not marked: {letter}"
        dead.add(letter.position)
    return outcome.remembered.find_forgotten(outcome.told)


def find_loss(outcome: Outcome, expected: Outcome) -> str | None:
    """What was told or dead-lettered must be, in one way or the other."""
    known, wanted = (
        {each.identity for each in which.told} | {identity_of(each) for each in which.dead} for which in (outcome, expected)
    )
    return f"lost: {sorted(wanted - known)}" if wanted - known else None


def find_mark(outcome: Outcome) -> str | None:
    marked = [each for each in (*outcome.told, *outcome.dead) if each.is_possible_duplicate]
    return f"marked possible-duplicate though nothing was forgotten: {marked[0]}" if marked else None


def _find_difference(outcome: Outcome, expected: Outcome) -> str | None:
    return find_mark(outcome) or _find_difference_but_for_marked_ones(outcome, expected)


def _find_difference_but_for_marked_ones(outcome: Outcome, expected: Outcome) -> str | None:
    """The units' states were kept: once what repeats is left out, nothing differs."""
    told: dict[str, Told] = {}
    for each in outcome.told:
        told.setdefault(each.identity, each)
    dead: dict[str, Dead] = {}
    for letter in outcome.dead:
        dead.setdefault(letter.position, letter)
    remembered = outcome.remembered
    return (
        find_loss(outcome, expected)
        or remembered.find_missing_data(outcome.told)
        or first_difference(told.values(), expected.told, dead.values(), expected.dead, remembered.forgettable)
    )


def identity_of(letter: Dead) -> str:
    """By what an envelope is known whether it was told or dead-lettered; other records by where they lay."""
    names = names_in(letter.value)
    return letter.position if names is None else names[1]


def by_unit(told: Iterable[Told]) -> dict[str, list[tuple[object, ...]]]:
    units: defaultdict[str, list[tuple[object, ...]]] = defaultdict(list)
    for each in told:
        units[each.unit].append(each.content)
    return dict(units)


def first_difference(
    told: Iterable[Told],
    expected_told: Iterable[Told],
    dead: Iterable[Dead] = (),
    expected_dead: Iterable[Dead] = (),
    but_for: Collection[str] = (),
) -> str | None:
    """Between what came out and what should have, but for these units."""
    units, wanted_units = by_unit(told), by_unit(expected_told)
    for unit in sorted((units.keys() | wanted_units.keys()) - set(but_for)):
        if units.get(unit) != wanted_units.get(unit):
            return f"unit {unit}: told {units.get(unit)}, expected {wanted_units.get(unit)}"
    letters, wanted = (_letters(which, but_for) for which in (dead, expected_dead))
    return None if letters == wanted else f"dead letters {letters}, expected {wanted}"


def _letters(dead: Iterable[Dead], but_for: Collection[str]) -> list[tuple[str, str, bytes]]:
    names = [(each, names_in(each.value)) for each in dead]
    return sorted((each.position, each.reason, each.value) for each, name in names if name is None or name[0] not in but_for)
