"""The outcome of a simulated run, and the check whether it is allowed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from enum import StrEnum
from typing import NamedTuple

from harness.crashes.remembered import Remembered, names_in
from harness.crashes.told_marks import find_wrong_mark
from harness.service_under_test import Dead, Told
from harness.workloads.shuffled import Workload


class Forgets(StrEnum):
    """What a run loses once, besides its workers."""

    NOTHING = "crashes"
    DATABASE = "database"
    POSITIONS = "positions"


class Outcome(NamedTuple):
    """The output of a run, whether it is allowed (`problem`), and how the worker was struck.

    `remembered` is what the service had to know during the run. `forgotten` counts the units that were idle for long enough.
    `facts` is what was told in facts, if there are any.
    """

    notifications: tuple[Told, ...]
    dead: tuple[Dead, ...]
    crashes: int
    strikes: int
    steps: int
    trace: tuple[str, ...] = ()
    problem: str | None = None
    remembered: Remembered = Remembered()
    forgotten: int = 0
    facts: tuple[Told, ...] = ()


def judged(outcome: Outcome, expected: Outcome, forgets: Forgets) -> Outcome:
    """Compare the outcome with the expected one: that of a run without faults in which no unit is ever forgotten.

    Units that may have been forgotten between two envelopes have to meet fewer conditions.
    """
    if outcome.problem is not None:
        return outcome
    problems = {
        Forgets.NOTHING: _find_difference,
        Forgets.DATABASE: find_loss,
        Forgets.POSITIONS: _find_difference_but_for_marked_ones,
    }
    problem = find_repetition(outcome) or problems[forgets](outcome, expected) or find_wrong_fact(outcome, forgets)
    return outcome._replace(problem=problem)


def with_true_marks(outcome: Outcome, work: Workload) -> Outcome:
    """Check the marks by themselves, because the output of the run without faults may be marked wrongly, too."""
    notifications = [each for each in outcome.notifications if each.unit not in outcome.remembered.forgettable]
    return outcome._replace(problem=outcome.problem or find_wrong_mark(notifications, work.plan.strategy))


def find_repetition(outcome: Outcome) -> str | None:
    """Find a repetition without a mark. It is allowed only if its unit may have been forgotten."""
    dead: set[str] = set()
    for letter in outcome.dead:
        if letter.position in dead and not letter.is_possible_duplicate:
            return f"dead twice and not marked: {letter}"
        dead.add(letter.position)
    return outcome.remembered.find_forgotten(outcome.notifications)


def find_wrong_fact(outcome: Outcome, forgets: Forgets) -> str | None:
    """Find a unit whose facts are not its notifications, each once and in their order. Without facts nothing is wrong.

    After a loss, what repeats is marked in both; the first of each kind counts. The first time, a notification may have left
    before the loss and its fact not: then the fact is that of the repetition.
    """
    if not outcome.facts:
        return None
    notifications, facts = outcome.notifications, outcome.facts
    if forgets is not Forgets.NOTHING:
        facts = _first_of_each(facts)
        notifications = _first_or_repeated(notifications, facts)
    units, wanted = by_unit(facts), by_unit(notifications)
    wrong = next((unit for unit in sorted(units.keys() | wanted.keys()) if units.get(unit) != wanted.get(unit)), None)
    return None if wrong is None else f"unit {wrong}: facts {units.get(wrong)}, notifications {wanted.get(wrong)}"


def _first_of_each(notifications: Iterable[Told]) -> tuple[Told, ...]:
    first: dict[str, Told] = {}
    for each in notifications:
        first.setdefault(each.identity, each)
    return tuple(first.values())


def _first_or_repeated(notifications: Sequence[Told], facts: Iterable[Told]) -> tuple[Told, ...]:
    """Return of each envelope the notification that its first fact repeats, else its first, each in its place.

    A marked fact repeats a marked notification: the first one left before the loss, and its fact did not.
    """
    chosen = {each.identity: each for each in _first_of_each(notifications)}
    for fact in facts:
        of_it = (each for each in notifications if each.identity == fact.identity and each.content == fact.content)
        same = [each for each in of_it if each.is_possible_duplicate == fact.is_possible_duplicate]
        chosen[fact.identity] = next(iter(same), chosen.get(fact.identity, fact))
    return tuple(each for each in notifications if chosen[each.identity] is each)


def find_loss(outcome: Outcome, expected: Outcome) -> str | None:
    """Find an expected envelope that was neither notified nor dead-lettered."""
    known, wanted = (
        {each.identity for each in which.notifications} | {identity_of(each) for each in which.dead}
        for which in (outcome, expected)
    )
    return f"lost: {sorted(wanted - known)}" if wanted - known else None


def find_mark(outcome: Outcome) -> str | None:
    marked = [each for each in (*outcome.notifications, *outcome.dead) if each.is_possible_duplicate]
    return f"marked possible-duplicate though nothing was forgotten: {marked[0]}" if marked else None


def _find_difference(outcome: Outcome, expected: Outcome) -> str | None:
    return find_mark(outcome) or _find_difference_but_for_marked_ones(outcome, expected)


def _find_difference_but_for_marked_ones(outcome: Outcome, expected: Outcome) -> str | None:
    """Find a difference beyond repetitions. The units' states were kept, so there must be none."""
    notifications: dict[str, Told] = {}
    for each in outcome.notifications:
        notifications.setdefault(each.identity, each)
    dead: dict[str, Dead] = {}
    for letter in outcome.dead:
        dead.setdefault(letter.position, letter)
    remembered = outcome.remembered
    return (
        find_loss(outcome, expected)
        or remembered.find_missing_data(outcome.notifications)
        or first_difference(notifications.values(), expected.notifications, dead.values(), expected.dead, remembered.forgettable)
    )


def identity_of(letter: Dead) -> str:
    """Return the identity of an envelope, the same in notifications and dead letters; for other records, their position."""
    names = names_in(letter.value)
    return letter.position if names is None else names[1]


def by_unit(notifications: Iterable[Told]) -> dict[str, list[tuple[object, ...]]]:
    units: defaultdict[str, list[tuple[object, ...]]] = defaultdict(list)
    for each in notifications:
        units[each.unit].append(each.content)
    return dict(units)


def first_difference(
    notifications: Iterable[Told],
    expected_notifications: Iterable[Told],
    dead: Iterable[Dead] = (),
    expected_dead: Iterable[Dead] = (),
    but_for: Collection[str] = (),
) -> str | None:
    """Find the first difference between output and expected output, except for the units in `but_for`."""
    units, wanted_units = by_unit(notifications), by_unit(expected_notifications)
    for unit in sorted((units.keys() | wanted_units.keys()) - set(but_for)):
        if units.get(unit) != wanted_units.get(unit):
            return f"unit {unit}: told {units.get(unit)}, expected {wanted_units.get(unit)}"
    letters, wanted = (_letters(which, but_for) for which in (dead, expected_dead))
    return None if letters == wanted else f"dead letters {letters}, expected {wanted}"


def _letters(dead: Iterable[Dead], but_for: Collection[str]) -> list[tuple[str, str, bytes]]:
    names = [(each, names_in(each.value)) for each in dead]
    return sorted((each.position, each.reason, each.value) for each, name in names if name is None or name[0] not in but_for)
