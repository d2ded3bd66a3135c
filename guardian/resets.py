"""Runs the cycles of a region. An error that a new takeover may mend leads to a reset, in the process.

When several resets in a row did not help, the region has failed: it takes nothing in until an operator resets it.

A reset goes back to the last checkpoint: all units and positions are dropped from memory, and each partition is taken over again.
The takeover reads the position of each participant, which fences what is still under way, and publishes what is pending.

A reset to the initial state begins with a commit of each partition that sets it back to the beginning of its log. The takeover
does the remainder (guardian/takeover.py).
"""

import logging
from collections.abc import Callable
from typing import NamedTuple

from guardian.backoff import BackoffSettings
from guardian.cycle import Cycle
from guardian.partitions import Servers, Tools
from guardian.ports import TransportRefused
from guardian.region import MustReset, Region, RegionState
from resequencer.errors import OwnershipLost

_log = logging.getLogger("resequencer.guardian")
_REST_MS = 500
"""How often a failed region polls without reading records, so that it stays a member of its group."""

_PAUSES = BackoffSettings(first_pause_ms=200)


class ResetAnswer(NamedTuple):
    """What came of an ordered reset."""

    is_done: bool
    text: str


class RegionCycles:
    """Runs cycles, resets the region, and executes an operator's orders. `wait` sleeps for that many milliseconds.

    `name` is that of the participant where one is both source and sink.

    A failed region owns no partition and reads nothing, but stays in its group. If it left, another worker would take the same
    partitions over, and would most probably fail of the same record or right: one after the other. An operator who wants that
    ends the worker.
    """

    def __init__(
        self, cycle: Cycle, servers: Servers, tools: Tools, wait: Callable[[int], None], name: str = "source and sink"
    ) -> None:
        self._cycle = cycle
        self._transport = servers.transport
        self._tools = tools
        self._wait = wait
        self._name = name

    @property
    def region(self) -> Region:
        return self._cycle.region

    def run_once(self) -> bool:
        """Run one cycle and return whether anything was committed; or continue a reset, or pause while the region has failed.

        Raises: as `Cycle.run_once`. Before the service has begun, and while it stops, also what else leads to a reset.
        """
        if self.region.state is RegionState.FAILED:
            self._rest()
            return False
        try:
            if self.region.state is RegionState.RESETTING:
                self._begin_again()
            return self._cycle.run_once()
        except (TransportRefused, MustReset) as error:
            if not self._tools.retry.waits_for_people or self._tools.retry.is_stopping():
                raise
            self._fail(error)
            return False

    def reset_by(self, who: str, *, is_forced: bool) -> ResetAnswer:
        """Reset the region for an operator: a failed one, or with `is_forced` one that runs. Called between two cycles."""
        state = self.region.state
        if state is RegionState.RESETTING:
            _log.warning("refused the reset of the region that %s ordered: a reset is under way", who)
            return ResetAnswer(is_done=False, text="a reset is under way; look again with `resequencer region show`")
        if state is not RegionState.FAILED and not is_forced:
            _log.warning("refused the reset of the region that %s ordered without --force: it has not failed", who)
            return ResetAnswer(is_done=False, text="the region has not failed; to reset it all the same, add --force")
        _log.warning("%s reset the region, which was %s", who, state.value)
        self.region.reset_by_order(self._tools.clock.now())
        self._cycle.drop_all()
        return ResetAnswer(is_done=True, text=f"the region, which was {state.value}, goes back to its last checkpoint")

    def find_obstacle(self) -> str | None:
        """Return why the region cannot go back to its initial state at the moment, None if it can."""
        if self.region.state in (RegionState.RESETTING, RegionState.FAILED):
            return f"the region is {self.region.state.value}"
        return self._cycle.partitions.find_obstacle()

    def reset_to_initial(self, who: str, *, is_dry_run: bool) -> ResetAnswer:
        """Let all owned partitions begin again, for an operator; or say what that would do. Called between two cycles.

        Refused while something is pending, and where what waits would be lost.
        """
        partitions, retry = self._cycle.partitions, self._tools.retry
        if (obstacle := self.find_obstacle()) is not None:
            return self._refuse(who, f"{obstacle}; try again, or look with `resequencer region show`")
        try:
            plans = retry.until_answered("source", partitions.plan_initial_state)
        except (OwnershipLost, TransportRefused) as error:
            return self._refuse(who, f"{error}; look with `resequencer region show`, and try again")
        if refusals := [each.refusal for each in plans if each.refusal is not None]:
            return self._refuse(who, "; ".join(refusals))
        described = "; ".join(map(str, plans)) or "nothing, for nothing was read yet"
        if is_dry_run:
            return ResetAnswer(is_done=True, text=f"a reset to the initial state would read {described}; nothing was changed")
        begun = [each for each in plans if partitions.begin_initial_state(each)]
        _log.warning("%s reset the region to its initial state: it reads %s", who, described)
        self.region.reset_by_order(self._tools.clock.now())
        self._cycle.drop_all()
        if lost := [str(each.partition) for each in plans if each not in begun]:
            text = f"{', '.join(lost)} went to another worker and was not reset; give the order again. It reads {described}"
            return ResetAnswer(is_done=False, text=text)
        return ResetAnswer(is_done=True, text=f"the region goes back to its initial state and reads {described}")

    def _refuse(self, who: str, why: str) -> ResetAnswer:
        _log.warning("refused the reset of the region to its initial state that %s ordered: %s", who, why)
        return ResetAnswer(is_done=False, text=why)

    def _fail(self, error: TransportRefused | MustReset) -> None:
        participant = "units" if isinstance(error, MustReset) and error.are_units else self._find_failing()
        self.region.fail(participant, str(error), self._tools.clock.now())
        self._cycle.drop_all()
        if self.region.state is RegionState.FAILED:
            text = "the region has failed and takes nothing in until `resequencer region reset`: %d resets did not help. %s: %s"
            _log.error(text, self.region.attempts, participant, error)
            return
        pause_ms = min(_PAUSES.first_pause_ms << (self.region.attempts - 1), _PAUSES.longest_pause_ms)
        text = "the region goes back to its last checkpoint in %.1f s, reset %d of %d in a row. %s: %s"
        _log.warning(text, pause_ms / 1_000, self.region.attempts, self.region.limits.max_resets, participant, error)
        self._wait(pause_ms)

    def _find_failing(self) -> str:
        """Return the name of the participant whose last call failed; of the only one, if there is one."""
        participants = self._transport.standing().participants
        return next((each.name for each in participants if each.problem is not None), self._name)

    def _begin_again(self) -> None:
        began_at = self._tools.clock.now()
        self._cycle.partitions.follow_assignment()
        now = self._tools.clock.now()
        self.region.end_reset(now - began_at, now)

    def _rest(self) -> None:
        """Poll for the sake of the group alone. What the source answers does not matter: the region has failed already."""
        self._cycle.stay_in_group()
        self._wait(_REST_MS)
