"""What the service promises with storage `none` and `acknowledge = when-handled`, and how a run is judged by it (decision 14).

* Nothing is lost: each envelope that a run without faults notifies or dead-letters is notified or dead-lettered.
* A unit that never goes idle between its envelopes repeats nothing: none of its envelopes is notified twice. An envelope of
  another unit is notified at most as often as it came. No record is dead-lettered twice.
* Take a unit that never goes idle between its envelopes, and of which nothing was released by a deadline or a bound, retried or
  dead-lettered (a dead-lettered unit may have been released). Its notifications are exactly those of a run without faults: a
  worker that reads its envelopes again comes to the same result, and in time. Released units are read again with new deadlines.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from random import Random

from harness.crashes.outcomes import Outcome, find_loss, find_mark, first_difference
from harness.crashes.remembered import names_in
from harness.workloads.shuffled import Phase, Workload
from msgspec.structs import replace
from simulation.reading import to_stored

_NEVER_MS = 1 << 40
_ROOM, TIGHT_ROOM = 3_800, 24
_LAST_PHASES = 5


def prepared_without_storage(work: Workload, random: Random) -> Workload:
    """Change the workload: mostly no unit ever goes idle, and some envelopes come again long after a possible release."""
    registry = replace(work.plan.registry, can_reload=False, stash_bytes=1 << 20)
    if random.random() < 0.6:
        registry = replace(registry, idle_timeout_ms=_NEVER_MS)
    plan = replace(work.plan, storage="none", acknowledge_handled=True, registry=registry)
    return work._replace(plan=plan, phases=tuple(_repeating(work.phases, random)))


def _repeating(phases: Sequence[Phase], random: Random) -> Iterator[Phase]:
    """Repeat earlier envelopes in the phases before the last ones."""
    came: list[tuple[int, bytes]] = []
    for at, phase in enumerate(phases):
        some = came[: random.choice((2, 6, len(came)))] if at < len(phases) - _LAST_PHASES else []
        again = random.sample(some, min(len(some), random.choice((0, 1, 3))))
        yield phase._replace(lines=(*phase.lines, *again))
        came += phase.lines


def done_characters(seed: int, work: Workload) -> int:
    """How many characters a position has for the offsets done ahead. Few are allowed only if units go idle."""
    is_tight = work.plan.registry.idle_timeout_ms < _NEVER_MS and Random(f"ahead {seed}").random() < 0.5
    return TIGHT_ROOM if is_tight else _ROOM


def judged_without_storage(outcome: Outcome, expected: Outcome, work: Workload, room: int) -> Outcome:
    if outcome.problem is not None:
        return outcome
    came = _Came(work)
    problem = find_mark(outcome) or find_loss(outcome, expected) or _find_repetition(outcome, came)
    if problem is None and room == _ROOM:
        problem = _find_difference(outcome, expected, work, came)
    return outcome._replace(problem=problem)


class _Came:
    """How often each envelope came, and which units may have gone idle between two of their envelopes.

    A unit may have gone idle if an envelope comes later than the idle timeout after the last new one.
    """

    def __init__(self, work: Workload) -> None:
        self.times: Counter[str] = Counter()
        self._new_at: dict[str, int] = {}
        self._rested: set[str] = set()
        self._idle_timeout_ms = work.plan.registry.idle_timeout_ms
        now = 0
        for phase in work.phases:
            now += phase.advance_ms
            for _, line in phase.lines:
                self._note(to_stored(line).value, now)

    def rests(self, unit: str) -> bool:
        """Whether the unit may go idle before the last of its envelopes has come."""
        return unit in self._rested

    def _note(self, value: bytes | None, now: int) -> None:
        if (names := names_in(value)) is not None:
            unit, identity = names
            if now - self._new_at.get(unit, now) >= self._idle_timeout_ms:
                self._rested.add(unit)
            if not self.times[identity]:
                self._new_at[unit] = now
            self.times[identity] += 1


def _find_repetition(outcome: Outcome, came: _Came) -> str | None:
    units = {each.identity: each.unit for each in outcome.notifications}
    for identity, times in Counter(each.identity for each in outcome.notifications).items():
        if times > (came.times[identity] if came.rests(units[identity]) else 1):
            return f"told {times} times: {identity}, which came {came.times[identity]} times"
    dead_lettered = Counter(each.position for each in outcome.dead)
    return next((f"dead_lettered {times} times: {position}" for position, times in dead_lettered.items() if times > 1), None)


def _find_difference(outcome: Outcome, expected: Outcome, work: Workload, came: _Came) -> str | None:
    """Compare the notifications of units that were not released early, retried, dead-lettered or idle."""
    rested = {each.unit for each in (*outcome.notifications, *expected.notifications) if came.rests(each.unit)}
    released = {each.unit for each in expected.notifications if each.incomplete is not None or each.is_late}
    dead_lettered = {names[0] for each in expected.dead if (names := names_in(each.value)) is not None}
    tried_again = {identity.split("#")[0] for identity in work.away_until}
    return first_difference(
        outcome.notifications, expected.notifications, but_for=rested | released | tried_again | dead_lettered
    )
