"""Runs the cycles of a region, and resets the region when a participant fails: back to the last checkpoint, in the process."""

import logging
from collections.abc import Callable
from typing import NamedTuple, TypeVar

from connectors.port import PublishRefused, TransportRefused
from domain.clock import Clock
from domain.errors import Damaged, ResequencerError
from guardian.backoff import GivenUp, RetryWithBackoff, is_of_storage
from guardian.cycle import Cycle
from guardian.partitions import Servers
from guardian.region import RegionState
from storage.port import StorageRefused

_log = logging.getLogger("resequencer.guardian")
_Answer = TypeVar("_Answer")
_REST_MS = 500
_CONTESTED = "another worker keeps taking the partitions: two services share them, or a worker was not ended"


class ResetOrder(NamedTuple):
    """A reset that a person ordered. With `is_forced` it is also carried out while the region runs."""

    id: str
    by: str
    is_forced: bool


class RegionCycle:
    """Decides what an error of a participant means: a reset, FAILED, or the end of the worker.

    A region that has FAILED takes nothing in and owns no partition, but stays in its group. Else its partitions would move
    to the next worker, which most often fails of the same cause, until all workers have failed. A person who wants them
    elsewhere stops this worker.

    `find_order` returns an order once, None if there is none. It is asked before each cycle, and while a server is waited for.
    """

    def __init__(
        self,
        cycle: Cycle,
        servers: Servers,
        retry: RetryWithBackoff,
        clock: Clock,
        wait: Callable[[int], None],
        find_order: Callable[[], ResetOrder | None] = lambda: None,
    ) -> None:
        self._cycle = cycle
        self._servers = servers
        self._retry = retry
        self._clock = clock
        self._wait = wait
        self._find_order = find_order
        self._order: ResetOrder | None = None
        self._is_in_cycle = False
        self.region = cycle.region
        retry.gives_up = self._gives_up

    def run_once(self) -> bool:
        """Run one cycle, if the region has not failed, and return whether anything was committed.

        Raises:
            Stopped: The worker has to stop while a server is unavailable.
            Escalated, ActorsFailed: A unit or the guardian failed, and the worker must end.
            TransportRefused, StorageRefused: Something is damaged, or the service has only just been started.
        """
        self._obey()
        if self.region.has_failed:
            self._rest()
            return False
        committed = self._guarded(self._cycle.run_once, instead=False)
        if self.region.is_late(self._clock.now()):
            self._fail("storage", _CONTESTED)
        return committed

    def expire(self) -> int:
        """As `Cycle.expire`."""
        return 0 if self.region.has_failed else self._guarded(self._cycle.expire, instead=0)

    def _guarded(self, call: Callable[[], _Answer], *, instead: _Answer) -> _Answer:
        self._is_in_cycle = True
        try:
            return call()
        except GivenUp as error:
            self._begin_anew(error)
        except (TransportRefused, StorageRefused, PublishRefused) as error:
            # At the start a person is at hand, and a service that cannot begin says so by ending.
            if isinstance(error, Damaged) or not self._retry.waits_for_people:
                raise
            self._fail(self._find_failed(error), str(error))
        finally:
            self._is_in_cycle = False
        return instead

    def _gives_up(self) -> bool:
        """Whether to reset instead of waiting for a server. Without a durable storage a reset would lose what waits."""
        if not self._is_in_cycle:
            return False
        self._look()
        if self._order is not None and self._order.is_forced:
            return True
        return self._servers.storage.is_durable and self.region.is_stuck(self._clock.now())

    def _begin_anew(self, error: GivenUp) -> None:
        if self._order is None:
            told = "%s. After the drain time-out the region is reset, and its partitions are taken over as their servers answer"
            _log.warning(told, error)
            self.region.reset(self._clock.now())
        # An order is noted, and obeyed before the next cycle.
        self._cycle.drop_all()

    def _fail(self, participant: str, reason: str) -> None:
        region = self.region
        region.fail(participant, reason, self._clock.now())
        self._cycle.drop_all()
        if region.has_failed:
            told = "the region has failed after %d resets in a row, and takes nothing in until `resequencer region reset`; %s: %s"
            _log.error(told, region.attempts, participant, reason)
            return
        _log.warning("the region is reset to its last checkpoint, because the %s failed: %s", participant, reason)
        if region.pause_ms:
            self._wait(region.pause_ms)

    def _find_failed(self, error: ResequencerError) -> str:
        if is_of_storage(error):
            return "storage"
        failed = next((each.name for each in self._servers.transport.standing().participants if each.has_failed), None)
        return failed or ("output" if self.region.state is RegionState.PUBLISHING else "source")

    def _rest(self) -> None:
        """Stay a member of the group, which removes a member that does not poll."""
        try:
            self._servers.transport.poll(0, 0)
        except ResequencerError as error:
            _log.debug("the source does not answer a region that has failed: %s", error)
        self._wait(_REST_MS)

    def _look(self) -> None:
        if self._order is None:
            self._order = self._find_order()

    def _obey(self) -> None:
        self._look()
        order, self._order = self._order, None
        if order is None:
            return
        refusal = self.region.obey(order.id, order.by, self._clock.now(), is_forced=order.is_forced)
        if refusal is not None:
            _log.warning("%s ordered a reset of the region, which is refused: %s", order.by, refusal)
            return
        how = "region reset --force" if order.is_forced else "region reset"
        _log.warning("the region is reset to its last checkpoint, as %s has ordered (%s)", order.by, how)
        self._cycle.drop_all()
