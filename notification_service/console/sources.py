"""What the console reads and what it may ask for, as the daemon's composition provides it."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

from guardian.ports import OrderBook
from notification_service.aggregation.commands import CommandWriter
from notification_service.aggregation.completions import CompletionsLog
from notification_service.aggregation.view import StoreView
from notification_service.connectors.dead_letters.port import AskedFor, DeadLetterStore, Sign
from notification_service.console.sent_notifications import left_unknown
from notification_service.console.unit_story import Left
from notification_service.delivery.direct.core.partition import DirectOrder, DirectOutcome
from notification_service.delivery.ledger.ledger import Ledger
from notification_service.status.aggregation import AggregationStatus, BridgeStatus
from notification_service.status.delivery import DeliveryStatus
from notification_service.status.service_report import ServedStatus, ServiceReport
from resequencer.clock import Clock, SteadyClock
from resequencer.record import Partition
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
    """What an operator may ask of the regions of this machine's workers."""

    def reset(self, slot: int, by: str, *, is_forced: bool) -> bool:
        """Order a reset of the worker's region, in the name of `by`. Return whether there is such a worker.

        Raises:
            ResequencerError: The order could not be given.
        """
        ...


class GroupSource(Protocol):
    """The groups of a service. Whatever is opened is used by one thread, and closed by its user.

    Any call but `find_status` may raise the errors of a transport (guardian/ports.py).
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

    def find_status(self) -> AggregationStatus:
        """Return what the aggregation workers on this machine report."""
        ...


class ArchiveDistance(NamedTuple):
    """How far a partition's archive is from what the brokers delete, in offsets.

    `retained` is the archive's end minus the log's first offset: the archived part that the brokers still have. If it is
    negative, so many were deleted before they were archived. `lag` is the decided part of the log that is not archived.
    """

    retained: int
    lag: int


OrderDelivery = Callable[[str, Partition, DirectOrder, float], DirectOutcome | None]


class Sources(NamedTuple):
    """`find_report` returns the report of the service of this run directory, None if there is none. A service
    that runs and has not reported yet is in the state STARTING, without workers.

    `open_view` is None with storage `none`. A view and a dead-letter store are used by one thread and closed by their user.
    `find_partitions` returns the partitions of the input, `find_ends` where their logs end now (offsets; bytes of files);
    a queue has no such ends. `lag_unit` is what counts as one in the input, `facts_unit` in the facts.
    `find_left` returns the notifications of a unit that left, as far as they can be read in so many seconds; it never raises.
    `storage` names the storage that the configuration has; it may contain a password, so it is not shown.
    `find_served` returns the addresses that the service of this machine serves.
    `open_orders` opens the order book, which its user closes; None if orders are not enabled.
    `find_archive_distances` returns them for the topics' partitions, empty if there is no archive that can be read here.
    `open_ledger` opens the ledger of deliveries, which connects at its first use; None if no receiver is configured.
    `find_delivery` returns what the delivery workers of the service on this machine report. `direct_receivers` are the receivers
    that are delivered to straight from topics. `order_delivery` gives an order for a partition of one of them, and returns the
    outcome, None if it has none within so many seconds. It may raise OrderRefused, and is None where there are no such receivers.
    `find_bridge` returns what the bridge reports.
    `groups` are the payments of messages, None where they are not counted.
    `regions` takes orders for regions, None where none can be given.
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
    find_left: Callable[[str, float], Left] = left_unknown
    find_served: Callable[[], ServedStatus] = ServedStatus
    storage: str = ""
    open_orders: Callable[[], OrderBook] | None = None
    find_archive_distances: Callable[[], Mapping[Partition, ArchiveDistance]] = dict
    open_ledger: Callable[[], Ledger] | None = None
    find_delivery: Callable[[], DeliveryStatus] = DeliveryStatus
    direct_receivers: tuple[str, ...] = ()
    order_delivery: OrderDelivery | None = None
    find_bridge: Callable[[], BridgeStatus] = BridgeStatus
    groups: GroupSource | None = None
    regions: RegionControl | None = None
