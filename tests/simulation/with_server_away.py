"""Runs in which handlers call a server that is away for a while, and how they are judged.

When the server is back, the unit that tries first depends on the latest calls, which a worker that dies forgets. So the output
is judged as in runs where clocks jump. Envelopes wait for the server as long as it is away: none of them becomes a dead letter.
"""

from collections.abc import Collection, Iterable
from random import Random

from harness.crashes.outcomes import Outcome, identity_of
from harness.crashes.remembered import names_in
from harness.service_under_test import BEGINNING, Dead
from harness.workloads.shuffled import Workload
from msgspec.structs import replace
from simulation.with_wild_clocks import judged_with_wild_clocks

from resequencer.dead_letter import DeadLetterReason

_LONGEST_MS = 300_000
_CONFLICT = DeadLetterReason.CONFLICTING_DUPLICATE


def prepared_with_server_away(work: Workload, random: Random) -> Workload:
    """Add the server to the workload: many envelopes need it, and units leave memory early."""
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
    """Return the identities of the dead letters, without conflicts of units that may have been forgotten.

    A forgotten unit does not know its earlier envelopes, so it notices no conflict with them.
    """
    return {identity_of(each) for each in dead if each.reason != _CONFLICT or _unit_of(each) not in forgettable}


def _unit_of(letter: Dead) -> str | None:
    names = names_in(letter.value)
    return None if names is None else names[0]
