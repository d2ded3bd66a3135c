"""What the console reads and may ask for, as the composition provides it; how threads share a view, and one keeps data fresh."""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Condition, Event, Thread
from time import monotonic, thread_time
from types import MappingProxyType
from typing import NamedTuple, NoReturn, Protocol

from guardian.ports import OrderBook
from notification_service.aggregation.commands import CommandWriter
from notification_service.aggregation.completions import CompletionsLog
from notification_service.aggregation.view import StoreView, ValueChange
from notification_service.connectors.dead_letters.port import AskedFor, DeadLetterStore, Sign
from notification_service.console.unit_story import Left, SentBy, UnitsFound
from notification_service.delivery.direct.core.partition import DirectOrder, DirectOutcome
from notification_service.delivery.ledger.ledger import Ledger
from notification_service.status.aggregation import AggregationStatus, BridgeStatus
from notification_service.status.delivery import DeliveryStatus
from notification_service.status.report import RegionStatus
from notification_service.status.service_report import ServedStatus, ServiceReport
from notification_service.status.sink_attributes import RegionOrder, ShownAttribute
from resequencer.clock import Clock, Instant, SteadyClock
from resequencer.record import Origin, Partition
from resequencer.storage_port import StorageUnavailable
from resequencer.unit_codec import UnitCodec
from storage.view_port import StorageView


class WorkerControl(Protocol):
    """What an operator may ask of the workers of this machine's service."""

    def restart(self, slot: int) -> bool:
        """Let the worker in the slot drain and be started again. Return whether there is such a worker."""
        ...

    def dump_threads(self, slot: int) -> str | None:
        """Return what the threads of the worker in the slot do now; None if there is no such worker, or it does not answer."""
        ...


class RegionControl(Protocol):
    """What an operator may ask of the regions of this machine's workers. A call returns None if no worker has this slot.

    `refusal` is why no region of the service may go back to its initial state, None if one may. With `needs_approval` a second
    person has to approve that.

    Raises of each call but those that find:
        ResequencerError: The order could not be given, or is refused.
    """

    refusal: str | None
    needs_approval: bool

    def reset(self, slot: int, by: str, *, is_forced: bool) -> str | None:
        """Order a reset of the worker's region, in the name of `by`, and return the id of the order."""
        ...

    def plan_initial(self, slot: int, by: str) -> str | None:
        """Ask the worker what its initial state would mean, and return the id of this order. Nothing changes."""
        ...

    def reset_to_initial(self, slot: int, by: str, because: str) -> RegionOrder | None:
        """Order the initial state, or propose it where a second person has to approve it."""
        ...

    def find_proposal(self, slot: int) -> RegionOrder | None:
        """Return the proposal that waits for a second person, None if there is none."""
        ...

    def decide(self, slot: int, proposal_id: str, by: str, *, is_approved: bool) -> None:
        """Approve a proposal, which gives the order, or take it away."""
        ...

    def find_answer(self, slot: int, order_id: str) -> RegionStatus | None:
        """Return the region as its worker reports it with the answer to this order; None before."""
        ...


class SinkControl(Protocol):
    """What an operator sees and sets of a sink whose attributes can be changed while the service runs.

    Raises of each call:
        ResequencerError: A value is refused, a region is being reset, or the file cannot be used. Nothing has changed.
    """

    def shown(self) -> Sequence[ShownAttribute]: ...

    def set(self, given: Mapping[str, str], by: str) -> Sequence[str]:
        """Set attributes by their names, and return what the person should know."""
        ...

    def reset(self) -> None:
        """Go back to what is configured."""
        ...


class StoreSource(Protocol):
    """A store of a service. Whatever is opened is used by one thread, and closed by its user.

    Any call may raise the errors of a transport (guardian/ports.py).
    """

    def claim(self) -> Path:
        """Return a directory that is this console's alone until its process ends. The same at each call."""
        ...

    def open_view(self) -> StoreView:
        """Open the one view of this process that is refreshed."""
        ...

    def open_copies(self) -> StoreView:
        """Open a view of the values as the refreshed view has them, for a request. It waits for no server."""
        ...

    def open_commands(self) -> CommandWriter: ...

    def open_completions(self) -> CompletionsLog: ...

    def find_changes(self, key: str, limit: int) -> Sequence[ValueChange] | None:
        """Return the last changes of a key and its members that are known, the latest first; None: no changes are kept."""
        ...


class ArchiveDistance(NamedTuple):
    """How far a partition's archive is from what the brokers delete, in offsets.

    `retained` is the archive's end minus the log's first offset: the archived part that the brokers still have. If it is
    negative, so many were deleted before they were archived. `lag` is the decided part of the log that is not archived.
    """

    retained: int
    lag: int


OrderDelivery = Callable[[str, Sequence[tuple[Partition | None, DirectOrder]], float], Sequence[DirectOutcome | None]]


def not_known(why: str) -> Callable[[str, float], Left]:
    """Return a search for the notifications of a unit that finds none, and says why."""
    return lambda *_: Left((), is_complete=False, searched=f"not known here: {why}")


ON_KAFKA = "they are on a Kafka topic, which can be read only as a whole; `archive-topics` makes a copy to search"
not_known_on_kafka = not_known(ON_KAFKA)


def not_searched(why: str) -> Callable[..., UnitsFound]:
    """Return a search that finds no unit, and says why and what would make it possible."""
    return lambda *_: UnitsFound((), is_complete=False, searched=f"not searched: {why}")


class ArrivedEarlier(NamedTuple):
    """The records of a unit that an archive has: the positions in the input, each with when its broker had it; what was read."""

    found: Mapping[str, Instant]
    searched: str


def nothing_archived(unit: str, max_seconds: float) -> ArrivedEarlier:
    """Without an archive of the input nothing is known of envelopes that nothing else names."""
    del unit, max_seconds
    return ArrivedEarlier(
        {},
        "only those are known that wait, were sent or are dead letters; `archive-topics` makes a copy of the input that has all",
    )


class Sources(NamedTuple):
    """`find_report` returns the report of the service of this run directory, None if there is none. A service
    that runs and has not reported yet is in the state STARTING, without workers.

    `open_view` is None with storage `none`. A view and a dead-letter store are used by one thread and closed by their user.
    `find_partitions` returns the partitions of the input, `find_ends` where their logs end now (offsets; bytes of files);
    a queue has no such ends. `lag_unit` is what counts as one in the input, `facts_unit` in the facts.
    `find_sent` returns the notifications of a unit that were sent, as far as they can be read in so many seconds; it never
    raises.
    `find_sent_by` returns the units of notifications that were sent, by another name, and `find_unit_at` the unit of the record
    at a position; as `find_sent`, both take about so many seconds, and never raise. So do `find_arrived`, which returns the
    records of a unit that an archive has, and `find_written`, which returns when the broker had the records at these positions.
    `storage` names the storage that the configuration has; it may contain a password, so it is not shown.
    `find_served` returns the addresses that the service of this machine serves.
    `open_orders` opens the order book, which its user closes; None if orders are not enabled.
    `find_archive_distances` returns them for the topics' partitions, empty if there is no archive that can be read here.
    `open_ledger` opens the ledger of deliveries, which connects at its first use; None if no receiver is configured.
    `find_delivery` returns what the delivery workers of the service on this machine report. `direct_receivers` are the receivers
    that are delivered to straight from topics. `order_delivery` gives orders for partitions of one of them, or for all of it
    (None), and returns the outcome of each, None if it has none within so many seconds. It may raise OrderRefused, and is None
    where there are no such receivers; `find_partitions_of` returns the partitions that the source of one of them has now.
    `find_bridge` and `find_aggregation` return what the bridge and the aggregation workers on this machine report.
    `groups` are the payments of messages, None where they are not counted; `stores` are users' own, by name.
    `regions` takes orders for regions, None where none can be given. `sink` is the sink mqtt, None without one.
    `clock` is the machine's, which pages show; by `steady_clock` the audit log and the history are dated and deleted.
    `facts` are lines about the configuration for people: names and texts.
    """

    find_report: Callable[[], ServiceReport | None]
    open_view: Callable[[], StorageView] | None
    find_partitions: Callable[[], Sequence[Partition]]
    find_ends: Callable[[], Mapping[Partition, int]]
    open_dead_letters: Callable[[AskedFor, Sign], DeadLetterStore]
    codec: UnitCodec
    workers: WorkerControl
    clock: Clock
    steady_clock: SteadyClock
    run_directory: Path
    lag_unit: str = "offsets"
    facts_unit: str = "offsets"
    facts: tuple[tuple[str, str], ...] = ()
    find_sent: Callable[[str, float], Left] = not_known_on_kafka
    find_sent_by: Callable[[SentBy, float], UnitsFound] = not_searched(ON_KAFKA)
    find_unit_at: Callable[[Origin, float], UnitsFound] = not_searched("no record can be read by its position here")
    find_arrived: Callable[[str, float], ArrivedEarlier] = nothing_archived
    find_written: Callable[[Sequence[Origin], float], Mapping[Origin, Instant]] = lambda *_: {}
    find_served: Callable[[], ServedStatus] = ServedStatus
    storage: str = ""
    open_orders: Callable[[], OrderBook] | None = None
    find_archive_distances: Callable[[], Mapping[Partition, ArchiveDistance]] = dict
    open_ledger: Callable[[], Ledger] | None = None
    find_delivery: Callable[[], DeliveryStatus] = DeliveryStatus
    direct_receivers: tuple[str, ...] = ()
    order_delivery: OrderDelivery | None = None
    find_partitions_of: Callable[[str], Sequence[Partition]] | None = None
    find_bridge: Callable[[], BridgeStatus] = BridgeStatus
    find_aggregation: Callable[[], AggregationStatus] = AggregationStatus
    groups: StoreSource | None = None
    stores: Mapping[str, StoreSource] = MappingProxyType({})
    regions: RegionControl | None = None
    sink: SinkControl | None = None


MAX_VIEWS = 4
"""Views at once. Each keeps its connections, and with Infinispan some memory."""

_WAIT_SECONDS = 2.0


class SharedViews:
    """Lends views to threads. Used from several threads."""

    def __init__(self, open_view: Callable[[], StorageView], wait_seconds: float = _WAIT_SECONDS) -> None:
        self._open_view = open_view
        self._wait_seconds = wait_seconds
        self._returned = Condition()
        self._idle: list[StorageView] = []
        self._lent = 0
        self._is_closed = False

    @contextmanager
    def lent(self) -> Iterator[StorageView]:
        """Lend a view. If all are in use for too long, it is one that says so: its methods raise StorageUnavailable."""
        view = self._take()
        try:
            yield view or _NoneFree()
        finally:
            if view is not None:
                self._give_back(view)

    def close(self) -> None:
        """Close the views; one that is in use is closed when it is given back."""
        with self._returned:
            self._is_closed = True
            idle, self._idle = self._idle, []
        for each in idle:
            each.close()

    def _take(self) -> StorageView | None:
        until = monotonic() + self._wait_seconds
        with self._returned:
            while not self._idle and self._lent >= MAX_VIEWS:
                if not self._returned.wait(until - monotonic()):
                    return None
            self._lent += 1
            if self._idle:
                return self._idle.pop()
        try:
            return self._open_view()
        except BaseException:
            self._give_back(None)
            raise

    def _give_back(self, view: StorageView | None) -> None:
        with self._returned:
            self._lent -= 1
            if view is not None and not self._is_closed:
                self._idle.append(view)
                view = None
            self._returned.notify()
        if view is not None:
            view.close()


class _NoneFree:
    """Stands for a view that could not be had in time."""

    @staticmethod
    def find_header(*_: object) -> NoReturn:
        raise StorageUnavailable(
            f"{MAX_VIEWS} other pages wait for the storage, which does not answer them; try again in a moment"
        )

    find_unit = find_waiting = find_header

    def close(self) -> None:
        pass


_log = logging.getLogger("resequencer.console")
_FIRST_WAIT_SECONDS = 1.0
FRESH_MS = 2_000
"""What is older is refreshed for a person who looks, who waits a moment for it."""
OLD_MS = 5_000
"""Of what is older still, a page says first of all how old it is."""


def is_old(at: Instant | None, now: Instant) -> bool:
    """Whether a page says first of all how old it is, because it shows what was there at this instant."""
    return at is not None and now - at > OLD_MS


class Spent(NamedTuple):
    """What a refresh cost: the seconds that passed, and those of a processor. It waits for servers and for a busy machine."""

    seconds: float
    cpu_seconds: float


class Pace(NamedTuple):
    """How often to refresh for `lasts_seconds` after a look: the shortest pause, and the part of one core that it may take.

    A server that answers slowly is asked for half of the time at most.
    """

    lasts_seconds: float
    min_pause_seconds: float
    max_part: float

    def pause_after(self, spent: Spent) -> float:
        """Return how long to pause, in seconds, after a refresh."""
        return max(self.min_pause_seconds, spent.seconds, spent.cpu_seconds * (1 / self.max_part - 1))


_NOTHING_SPENT = Spent(0.0, 0.0)


class Refresher:
    """Calls `refresh` in a thread, and `close` at its end; without `start`, its owner refreshes.

    `refresh` returns whether the next one should follow after the shortest pause, however long it took. The first of `paces` of
    which there was a look lately holds; without one nothing is refreshed. One that lasts for ever needs no look.
    """

    def __init__(self, name: str, refresh: Callable[[], bool], close: Callable[[], None], paces: Sequence[Pace]) -> None:
        self._name, self._refresh, self._close = name, refresh, close
        self._looks = {each: 0.0 if each.lasts_seconds == float("inf") else float("-inf") for each in paces}
        self._is_wanted, self._is_refreshed = Event(), Event()
        self._thread: Thread | None = None
        self.is_stopping = False

    def start(self) -> None:
        if self._thread is None:
            self._thread = Thread(target=self._run, name=self._name, daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """Stop the thread, which ends with the process if a server does not answer it in time."""
        self.is_stopping = True
        self._is_wanted.set()
        if self._thread is None:
            self._close()
        else:
            self._thread.join(_FIRST_WAIT_SECONDS)
            self._thread = None

    def look(self, pace: Pace, *, is_old: bool = False) -> None:
        """Note that a person looks. If what there is to see is old, wait a moment for a refresh."""
        self._looks[pace] = monotonic()
        if is_old and self._thread is not None:
            self._is_refreshed.clear()
            self._is_wanted.set()
            self._is_refreshed.wait(_FIRST_WAIT_SECONDS)
        else:
            self._is_wanted.set()

    def _run(self) -> None:
        spent: Spent | None = None
        try:
            while self._wait_until_due(spent):
                began, cpu_began, is_soon = monotonic(), thread_time(), False
                try:
                    is_soon = self._refresh()
                except Exception:  # noqa: BLE001 - A fault in our code must not end the thread; the log has it.
                    _log.exception("the %s could not be refreshed; it is tried again", self._name)
                self._is_refreshed.set()
                spent = _NOTHING_SPENT if is_soon else Spent(monotonic() - began, thread_time() - cpu_began)
        finally:
            self._close()

    def _wait_until_due(self, spent: Spent | None) -> bool:
        """Wait until the next refresh is due; return False if there is to be none. A look ends a longer pause."""
        ended = monotonic()
        while not self.is_stopping:
            now = monotonic()
            pace = next((each for each, looked_at in self._looks.items() if now - looked_at < each.lasts_seconds), None)
            if pace is not None and spent is None:
                return True
            remaining = None if pace is None else ended + pace.pause_after(spent or _NOTHING_SPENT) - now
            if remaining is not None and remaining <= 0:
                return True
            self._is_wanted.wait(remaining)
            self._is_wanted.clear()
        return False
