"""Runs a store: reads commands, applies them, and commits what they change. An aggregation worker runs all stores."""

import logging
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from time import monotonic
from typing import NamedTuple

from guardian.ports import Polled, PublishRefused, TransportRefused, TransportUnavailable
from notification_service.aggregation.core import Aggregate, Processor, Turn
from notification_service.aggregation.port import Step, Store
from resequencer.clock import Instant, SteadyClock
from resequencer.dead_letter import DeadLetter
from resequencer.record import Partition

_LOG = logging.getLogger("resequencer.aggregation")
_AT_ONCE = 1_000
_WAIT_MS = 500
_PAUSE_MS = 1_000
_SET_ASIDE_SECONDS = 10
"""How long to wait before a refused partition is tried again while others are read."""


class StoreReport(NamedTuple):
    """How a store is doing. Counts are since the start of the process; `behind` is in the units of offsets, by partition.

    `problem` says why the store stands still, None while a partition is read; `notes` say which partitions wait, and for what.
    `untaken` are the partitions that wait. What was there at the instant `pending_since` is not all applied, as far as is known;
    of a store that keeps up it is a moment ago.
    """

    name: str
    problem: str | None
    notes: tuple[str, ...]
    behind: Mapping[Partition, int]
    applied: int
    completed: int
    dead_letters: int
    untaken: int
    pending_since: Instant


class _Untaken(NamedTuple):
    """Why an assigned partition is not taken over. It is tried again from `next_at` on, by a clock that never goes back."""

    why: str
    failures: int
    is_refused: bool = False
    next_at: float = 0


class StoreRunner:
    """`open_store` is called again after an error that an operator has to repair: new clients find what was repaired.

    `wait` sleeps for that many milliseconds, and returns earlier when the process is to end.
    """

    def __init__(
        self,
        name: str,
        aggregate: Aggregate,
        open_store: Callable[[], Store],
        clock: SteadyClock,
        wait: Callable[[int], object],
    ) -> None:
        self.name = name
        self._processor = Processor(aggregate)
        self._open_store = open_store
        self._clock, self._wait = clock, wait
        self._store: Store | None = None
        self._read_to: dict[Partition, int] = {}
        self._dated_to: dict[Partition, str | None] = {}
        """Up to which key values were looked at for instants of a clock that was ahead; None: all were."""
        self._ends: Mapping[Partition, int] = {}
        self._pending: tuple[Mapping[Partition, int] | None, Instant] = (None, clock.now())
        """Ends of logs that are not reached yet, None before the first poll, and when the logs ended there."""
        self._untaken: dict[Partition, _Untaken] = {}
        self._is_refused = False
        self._at_once = _AT_ONCE
        self._problem: str | None = None
        self._applied = self._completed = self._dead_letters = 0

    def run(self, is_stopping: Callable[[], bool]) -> None:
        """Apply commands until `is_stopping`. What is under way is committed or not; the next worker continues either way."""
        try:
            while not is_stopping():
                self.turn()
        finally:
            self.close()

    def turn(self) -> None:
        """Poll once, and commit what comes of it. What does not answer is asked again after a pause."""
        try:
            store = self._opened()
            if self._is_refused:
                store.poll(0, _WAIT_MS)  # Afterwards it is known which partitions remain; the others need not be taken over.
                self._is_refused = False
            self._follow(store)
            self._take(store)
        except PublishRefused as error:
            _LOG.info("store %s: %s", self.name, error)
            self._is_refused = True
            self._let_go_all()
        except (TransportUnavailable, TransportRefused) as error:
            self._stand_still(error)
        else:
            if self._problem is not None:
                _LOG.info("store %s continues", self.name)
                self._problem = None

    def report(self) -> StoreReport:
        """Return how it is doing. May be called from any thread."""
        ends, read_to = dict(self._ends), dict(self._read_to)
        behind = {each: max(0, ends.get(each, offset) - offset) for each, offset in read_to.items()}
        waiting = tuple(f"{each} is not taken over yet: {untaken.why}" for each, untaken in sorted(dict(self._untaken).items()))
        problem = self._problem if self._problem is not None or read_to or not waiting else waiting[0]
        notes = () if self._store is None else tuple(self._store.notes)
        counts = self._applied, self._completed, self._dead_letters
        return StoreReport(self.name, problem, (*notes, *waiting), behind, *counts, len(waiting), self._pending[1])

    def close(self) -> None:
        store, self._store = self._store, None
        self._read_to.clear()
        self._untaken.clear()
        if store is not None:
            store.close()

    def _opened(self) -> Store:
        if self._store is None:
            self._store = self._open_store()
        return self._store

    def _follow(self, store: Store) -> None:
        """Let go of partitions that are no longer assigned, and take over new ones.

        Raises:
            TransportRefused: All that are assigned are refused. If there are others, they are read.
        """
        assigned = set(store.assignment())
        for gone in self._read_to.keys() - assigned:
            self._let_go(store, gone)
        before = self._untaken = {each: untaken for each, untaken in self._untaken.items() if each in assigned}
        now = monotonic()
        due = [each for each in assigned - self._read_to.keys() if each not in before or before[each].next_at <= now]
        refusal = self._take_over(store, sorted(due, key=lambda each: (before[each].failures if each in before else 0, each)))
        if refusal is not None and all(each in self._untaken and self._untaken[each].is_refused for each in assigned):
            raise refusal
        for each, untaken in self._untaken.items():
            if each not in before or untaken.is_refused != before[each].is_refused:
                level = logging.ERROR if untaken.is_refused else logging.INFO
                _LOG.log(level, "store %s cannot take over %s yet, the others continue: %s", self.name, each, untaken.why)

    def _take_over(self, store: Store, partitions: Sequence[Partition]) -> TransportRefused | None:
        """Take over one after the other, up to one that does not answer; return an error if some are refused."""
        refusal = None
        untaken = dict(self._untaken)
        for each in partitions:
            failures = untaken[each].failures if each in untaken else 0
            try:
                self._read_to[each] = store.take_over(each)
                untaken.pop(each, None)
            except TransportRefused as error:
                next_at = monotonic() + _SET_ASIDE_SECONDS
                untaken[each], refusal = _Untaken(str(error), failures, is_refused=True, next_at=next_at), error
            except TransportUnavailable as error:
                untaken[each] = _Untaken(str(error), failures + 1)
                break  # The others continue; the next turn begins with one that has failed less often.
        self._untaken = untaken
        return refusal

    def _take(self, store: Store) -> None:
        begun = self._clock.now()
        polled = store.poll(self._at_once, _WAIT_MS)
        self._ends = polled.log_ends
        now = self._clock.now()
        self._commit(store, self._applied_turns(store, polled, now))
        self._note_reach(polled, begun)
        if not self._clock.is_settled:
            return  # A report that a deadline has passed cannot be taken back.
        counts_from = self._clock.counts_from
        is_trusted = counts_from is not None
        # All commands that were there when the poll began have been applied: until then nothing is missed.
        for partition in self._caught_up(store):
            turn = self._processor.wake(store.values(partition), begun, now, counts_from)
            self._commit(store, {partition: Step(turn, self._read_to[partition])})
            if is_trusted and turn.is_empty and (after := self._dated_to.setdefault(partition, "")) is not None:
                turn, self._dated_to[partition] = self._processor.date_back(store.values(partition), after, now)
                self._commit(store, {partition: Step(turn, self._read_to[partition])})
        if not is_trusted:
            self._dated_to.clear()

    def _note_reach(self, polled: Polled, begun: Instant) -> None:
        """Note how far the store is behind, after what was polled is committed. What another worker has is not ours to reach."""
        ends, since = self._pending
        if ends is None:
            ends = polled.log_ends
        is_reached = all(offset >= ends.get(each, 0) for each, offset in self._read_to.items())
        self._pending = (polled.log_ends, begun) if is_reached and not self._untaken else (ends, since)

    def _applied_turns(self, store: Store, polled: Polled, now: Instant) -> dict[Partition, Step]:
        steps: dict[Partition, Step] = {}
        for partition, next_offset in sorted(polled.next_offsets.items()):
            if partition not in self._read_to:
                continue
            records = [each for each in polled.records if each.origin.partition == partition]
            steps[partition] = Step(self._processor.apply(store.values(partition), records, now), next_offset)
            if store.shares_values:
                self._commit(store, {partition: steps.pop(partition)})
        return steps

    def _caught_up(self, store: Store) -> Sequence[Partition]:
        """Return the partitions whose values lack no command. With shared values it is one for all."""
        caught_up = [each for each, offset in self._read_to.items() if offset >= self._ends.get(each, offset + 1)]
        if store.shares_values:
            is_whole = len(caught_up) == len(self._read_to) and not self._untaken
            return caught_up[:1] if is_whole else []
        return caught_up

    def _commit(self, store: Store, steps: Mapping[Partition, Step]) -> None:
        moved = {each: step for each, step in steps.items() if step.next_offset > self._read_to[each] or not step.turn.is_empty}
        if not moved:
            return
        try:
            store.commit(moved)
        except TransportUnavailable:
            # Values are larger than commands: what is too much for one transaction comes in smaller portions.
            self._at_once = max(1, self._at_once // 2)
            raise
        self._at_once = min(_AT_ONCE, 2 * self._at_once)
        for partition, step in moved.items():
            self._read_to[partition] = step.next_offset
            self._count(step.turn)

    def _count(self, turn: Turn) -> None:
        dead_letters = sum(isinstance(each, DeadLetter) for each in turn.output)
        self._applied += turn.applied
        self._dead_letters += dead_letters
        self._completed += len(turn.output) - dead_letters

    def _stand_still(self, error: TransportUnavailable | TransportRefused) -> None:
        if self._problem != str(error):
            _LOG.warning("store %s stands still: %s", self.name, error)
        self._problem = str(error)
        self._let_go_all()
        if isinstance(error, TransportRefused):
            self.close()
        self._wait(_PAUSE_MS)

    def _let_go_all(self) -> None:
        if self._store is not None:
            for each in list(self._read_to):
                self._let_go(self._store, each)

    def _let_go(self, store: Store, partition: Partition) -> None:
        self._read_to.pop(partition, None)
        self._dated_to.pop(partition, None)
        store.let_go(partition)


_REPORT_MS = 1_000


class AggregationWorker:
    """`wait` sleeps for that many milliseconds, and returns earlier when the process is to end."""

    def __init__(self, runners: Sequence[StoreRunner], wait: Callable[[int], object]) -> None:
        self._runners = runners
        self._wait = wait

    def run(self, is_stopping: Callable[[], bool], report: Callable[[Sequence[StoreReport]], object]) -> None:
        """Run until `is_stopping`, and end what is under way. An unexpected error of a store ends them all, and is raised."""
        is_ending = Event()
        with ThreadPoolExecutor(len(self._runners), "store") as threads:
            running = [threads.submit(each.run, lambda: is_stopping() or is_ending.is_set()) for each in self._runners]
            while not is_stopping() and not any(each.done() for each in running):
                report([each.report() for each in self._runners])
                self._wait(_REPORT_MS)
            is_ending.set()
        for each in running:
            each.result()
