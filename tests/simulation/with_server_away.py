"""Runs in which handlers call a server that is away for a while, and how they are judged.

Who tries first when the server is back depends on who has called it lately, which a worker that dies forgets. So what leaves is
judged as where clocks jump; and whoever waits for the server waits as long as that takes: nothing of it becomes a dead letter.
"""

from collections.abc import Collection, Iterable
from random import Random

from harness.crashes.outcomes import Outcome, identity_of
from harness.crashes.remembered import names_in
from harness.service_under_test import BEGINNING, Dead
from harness.workloads.shuffled import Workload
from msgspec.structs import replace
from simulation.with_wild_clocks import judged_with_wild_clocks

from domain.dead_letter import DeadLetterReason

_LONGEST_MS = 300_000
_CONFLICT = DeadLetterReason.CONFLICTING_DUPLICATE


def prepared_with_server_away(work: Workload, random: Random) -> Workload:
    """Many envelopes need it. Units leave memory early."""
    identities = {f"uow-{unit}#{flow}#{number}" for unit in range(20) for flow in "AB" for number in range(1, 8)}
    share = random.choice((0.1, 0.5, 1.0))
    needs = frozenset(each for each in sorted(identities) if random.random() < share)
    begins_at = BEGINNING + random.choice((0, 0, 20_000))
    away = range(begins_at, begins_at + random.randint(10_000, _LONGEST_MS))
    registry = replace(work.plan.registry, unit_stash=random.choice((0, 1, 1_000)))
    plan = replace(work.plan, registry=registry)
    return work._replace(plan=plan, away_until={}, needs_server=needs, server_away=away)


def judged_with_server_away(outcome: Outcome, expected: Outcome, work: Workload) -> Outcome:
    outcome = judged_with_wild_clocks(outcome, expected, work)
    but_for = outcome.remembered.forgettable
    letters, wanted = (_letters(which.dead, but_for) for which in (outcome, expected))
    if outcome.problem is None and letters != wanted:
        return outcome._replace(problem=f"dead letters of {sorted(letters)}, expected of {sorted(wanted)}")
    return outcome


def _letters(dead: Iterable[Dead], forgettable: Collection[str]) -> set[str]:
    """A unit that was forgotten knows of no conflict with what came before."""
    return {identity_of(each) for each in dead if each.reason != _CONFLICT or _unit_of(each) not in forgettable}


def _unit_of(letter: Dead) -> str | None:
    names = names_in(letter.value)
    return None if names is None else names[0]
