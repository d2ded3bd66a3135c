"""The partitions of a worker: takeover, healing, giving up. The steps are those of docs/decisions/0004-exactly-once.md."""

import logging
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from guardian.actor_gateway import ActorGateway
from guardian.backoff import BackoffSettings, LogRateLimit, RetryWithBackoff, is_of_storage
from guardian.owned_partition import OwnedPartition
from guardian.partition_orders import PartitionOrders, lost_by_heal
from guardian.ports import NoOrders, OrderSource, PartitionOutput, Position, PublishRefused, Transport, TransportRefused
from guardian.region import RegionLimits
from guardian.takeover import (
    InitialPlan,
    Takeover,
    TakeoverBackoff,
    begin_initial_state,
    changed_places,
    end_initial_state,
    find_metadata,
    is_unfinished,
    named_source,
    plan_initial_state,
    plan_takeover,
    source_of,
)
from resequencer.clock import Clock
from resequencer.errors import ConfigurationError, OwnershipLost, TransientError, Withheld
from resequencer.event import FIRST_FORMAT, Decoder
from resequencer.order import OrderKind, OrderOutcome
from resequencer.record import Origin, Partition
from resequencer.storage_port import Header, PartitionStore, Storage, StorageRefused, Waits
from resequencer.unit_codec import strategy_changed

_log = logging.getLogger("resequencer.guardian")


_ENDED_BY_RESET = "the region was reset to its initial state: the order has no effect any more; look at the unit, and order again"


class CycleSettings(msgspec.Struct, frozen=True):
    """The settings of a cycle.

    `batch_size` is the most records of a poll. `idle_ms` is how long a poll waits for the first record. `strategy` is the
    strategy's name with its keys, as stored states carry it; `strategy_key` is its configuration key, for errors.

    With `acknowledge_handled` a position waits for the oldest stashed envelope of its partition, because the source is the store.
    The position's metadata then lists the done offsets beyond it, in at most `done_characters`. If these characters are used up,
    the partition is not read. None means no limit: a list that grows too large is left out instead.

    A unit in which nothing waits is kept for `retention_ms` of its partition's caught-up clock. `portion_bytes` is the most that
    is published at once. Orders of the kinds in `approval` need a second person; one that waits for unread records does so for
    `backlog_wait_ms` at most. A position that moves without output is published every `acknowledge_every_ms`; 0: as soon as it
    moves. With `takes_whole_batches` a poll asks for `batch_size` records, however long their turns take; else for as many as
    take a second.

    `events` names the format of the events, as stored states carry it. `mapping` has the places that it maps, by field, as the
    query of a URL has them: with these a refusal says what changed. What is stored with the format `replaced_events` is taken
    over, and may lead to duplicates; with any other it is refused. `events_key` is the configuration key of the format. With
    `watches_keys` units whose records have different keys are counted.
    """

    strategy: str
    batch_size: int = 500
    idle_ms: int = 500
    acknowledge_handled: bool = False
    done_characters: int | None = None
    retention_ms: int = 4 * 3_600_000
    portion_bytes: int = 16 << 20
    approval: frozenset[OrderKind] = frozenset()
    backlog_wait_ms: int = 600_000
    acknowledge_every_ms: int = 1_000
    takes_whole_batches: bool = False
    region: RegionLimits = RegionLimits()
    strategy_key: str = "strategy"
    events: str = FIRST_FORMAT
    mapping: str = ""
    replaced_events: str | None = None
    events_key: str = "format"
    watches_keys: bool = False


class Servers(NamedTuple):
    """The transport and the storage for the I/O of a worker, the gateway to its actors, and the source of orders."""

    transport: Transport
    storage: Storage
    actors: ActorGateway
    orders: OrderSource = NoOrders()


class Tools(NamedTuple):
    """What else a worker needs. `problem_log` limits how often the same problem is logged."""

    decoder: Decoder
    clock: Clock
    retry: RetryWithBackoff
    random_token: Callable[[], str]
    problem_log: LogRateLimit


class Partitions:
    """The owned partitions, and the takeovers that are postponed.

    `heals` counts the takeovers that found the storage behind the position. `losses` counts the partitions that another worker
    took over.
    """

    def __init__(self, servers: Servers, tools: Tools, settings: CycleSettings) -> None:
        self._transport, self._storage, self._actors, self._orders = servers
        self._tools = tools
        self._settings = settings
        self.owned: dict[Partition, OwnedPartition] = {}
        self._has_owned = False
        self.postponed_takeovers = TakeoverBackoff(BackoffSettings())
        self.heals = 0
        self.losses = 0

    @property
    def is_healing(self) -> bool:
        """Whether records that the storage has lost are being read again."""
        return any(owned.is_healing for owned in self.owned.values())

    def is_published(self, origin: Origin) -> bool:
        """Whether the record's output is published and the record is not read again after a restart."""
        owned = self.owned.get(origin.partition)
        return owned is not None and owned.is_published(origin.offset)

    def follow_assignment(self) -> None:
        """Drop partitions that are no longer assigned, and take over new ones.

        A takeover that fails is tried again later, and holds up no other partition. It fails while the storage or the output is
        unavailable, or while a publication of the last owner is undecided, or until an operator has mended what is refused.

        Raises:
            TransportRefused, StorageRefused: The service has just been started, and this worker can take no partition over.
            ConfigurationError: It has just been started, and what is stored of a partition is of another format or strategy.
        """
        refusal: TransportRefused | StorageRefused | None = None
        assigned = set(self._tools.retry.until_answered("source", self._transport.assignment))
        for partition in self.owned.keys() - assigned:
            fields = {"partition": str(partition)}
            _log.warning("%s was reassigned; its waiting envelopes stay in storage", partition, extra=fields)
            self._drop(partition)
        for partition in self.postponed_takeovers.untaken.keys() - assigned:
            self.postponed_takeovers.forget(partition)
        for partition in sorted(assigned - self.owned.keys()):
            if self.postponed_takeovers.is_due(partition, self._tools.clock.now()):
                refusal = self._try_to_take_over(partition) or refusal
        self._has_owned = self._has_owned or bool(self.owned)
        if refusal is not None and not (self._has_owned or self._tools.retry.waits_for_people):
            raise refusal  # A service that can take nothing over does not start.

    def lose(self, partition: Partition, error: Exception) -> None:
        """Drop a partition that another worker has taken over.

        If the partition is still assigned to this worker, the next cycle takes it over again: a zombie must not win.
        """
        _log.warning(
            "%s was taken over by another worker while this one was paused; reloading it if it is still assigned (%s)",
            partition, error, extra={"partition": str(partition)},
        )  # fmt: skip
        self.losses += 1
        self._drop(partition)

    def drop_all(self) -> None:
        """Drop all partitions from memory, and the takeovers that were postponed: the next cycle takes over what is assigned."""
        for partition in list(self.owned):
            self._drop(partition)
        for partition in list(self.postponed_takeovers.untaken):
            self.postponed_takeovers.forget(partition)

    def find_obstacle(self) -> str | None:
        """Return why the owned partitions cannot go back to their initial state at the moment, None if they can."""
        untaken = next(iter(self.postponed_takeovers.untaken.items()), None)
        if untaken is not None:
            return f"{untaken[0]} is not taken over yet: {untaken[1].reason}"
        pending = next((name for name, owned in self.owned.items() if owned.unpublished), None)
        if pending is not None:
            return f"{pending} has output that is not sent yet"
        return None if self.owned else "the worker owns no partition"

    def plan_initial_state(self) -> Sequence[InitialPlan]:
        """Look at what the initial state means for each owned partition that is not in it.

        Raises: as `PartitionStore.load`, and the transport's. A partition that another worker has taken over is lost then.
        """
        plans = []
        for name, owned in sorted(self.owned.items()):
            if owned.store.header.is_empty:
                continue
            try:
                plans.append(plan_initial_state(name, owned.store, self._transport.start_offset(name), owned.read_to))
            except OwnershipLost as error:
                self.lose(name, error)
                raise
        return plans

    def begin_initial_state(self, plan: InitialPlan) -> bool:
        """Set an owned partition back, and return whether that was done. Its next takeover removes its units.

        Nothing of it may be pending, and it must be dropped before anything else is done with it.
        """
        store = self.owned[plan.partition].store
        commit = begin_initial_state(store.header, plan.start, self._tools.random_token())
        try:
            self._tools.retry.until_answered("storage", partial(store.commit, commit))
        except OwnershipLost as error:
            self.lose(plan.partition, error)
            return False
        return True

    def _end_initial_state(self, partition: Partition, store: PartitionStore) -> None:
        """Remove the units of a partition that an operator has reset to its initial state.

        An order that has no outcome yet, as a hold that lasts, ends with its unit.
        """
        _log.warning("%s goes back to its initial state: its units are removed", partition, extra={"partition": str(partition)})
        known, now = PartitionOrders.decode(store.header.orders), self._tools.clock.now()
        lost = lost_by_heal(self._orders.find_without_outcome(partition), known.next_offset, now)
        end_initial_state(partition, store, self._tools.random_token, [replace(each, text=_ENDED_BY_RESET) for each in lost])

    def _drop(self, partition: Partition) -> None:
        """Drop the units of a partition from memory. Nothing is committed; the next owner publishes what is pending."""
        del self.owned[partition]
        self._actors.drop(partition)
        self._storage.give_up(partition)

    def _try_to_take_over(self, partition: Partition) -> TransportRefused | StorageRefused | None:
        """Return why the partition is refused until an operator acts; None if it is taken over, or only postponed."""
        try:
            self.take_over(partition)
        except OwnershipLost as error:
            # Another worker opened the partition meanwhile. The worker that it is assigned to tries again and comes last.
            self.losses += 1
            self._postpone(partition, "storage", error, is_refused=True)
        except (TransientError, Withheld, PublishRefused) as error:
            if isinstance(error, Withheld) and not self._tools.retry.can_wait_for(error):
                raise
            what = "storage" if is_of_storage(error) else "output"
            self._postpone(partition, what, error, is_refused=isinstance(error, PublishRefused))
        except (TransportRefused, StorageRefused) as error:
            self._exclude(partition, error)
            return error
        except ConfigurationError as error:
            if not self._tools.retry.waits_for_people:
                raise  # The service does not start.
            self._exclude(partition, error)
        else:
            self.postponed_takeovers.forget(partition)
        return None

    def _exclude(self, partition: Partition, error: TransportRefused | StorageRefused | ConfigurationError) -> None:
        what = "source" if isinstance(error, TransportRefused) else "storage"
        if self.postponed_takeovers.postpone(partition, what, str(error), self._tools.clock.now()):
            fields = {"partition": str(partition)}
            _log.error("%s is excluded until an operator acts, the other partitions continue: %s", partition, error, extra=fields)

    def _postpone(self, partition: Partition, what: str, error: Exception, *, is_refused: bool = False) -> None:
        now = self._tools.clock.now()
        if self.postponed_takeovers.postpone(partition, what, str(error), now, is_refused=is_refused):
            fields = {"partition": str(partition)}
            _log.warning(
                "the %s is unavailable, retrying the takeover of %s until it answers: %s", what, partition, error, extra=fields
            )

    def take_over(self, partition: Partition) -> None:
        """Take a partition over. After a failure it can be repeated from the start: nothing is in memory before the end."""
        position, source = self._transport.position(partition), self._transport.source(partition)
        store = self._storage.open(partition)
        _refuse_other_source(partition, store.header, source)
        if is_unfinished(store.header):
            self._end_initial_state(partition, store)
        is_replaced = self._has_replaced_events(store)
        waiting = store.waiting()
        self._refuse_other_strategy(waiting)
        _refuse_moved(partition, position)
        owned, is_news = self._reconcile(partition, store, position, source, is_replaced=is_replaced)
        if owned.done_to > owned.read_to:
            self._transport.seek(partition, owned.done_to)  # The transport refuses it if the log is now shorter or another one.
        if is_news:
            output = owned.output(0)
            self._transport.publish([output])
            owned.note_published(output, self._tools.clock.now())
        self._transport.seek(partition, owned.read_to, owned.source_state)
        self._actors.note_pauses(partition, owned.orders.pauses)
        self._actors.arm(partition, waiting)
        self.owned[partition] = owned
        fields = {"partition": str(partition), "position": owned.read_to}
        _log.info("took over %s at offset %d; waiting units: %d", partition, owned.read_to, len(waiting), extra=fields)

    def _reconcile(
        self, partition: Partition, store: PartitionStore, position: Position | None, source: str, *, is_replaced: bool
    ) -> tuple[OwnedPartition, bool]:
        log = range(self._transport.start_offset(partition), self._transport.end_offset(partition))
        standing, is_durable = self._transport.standing(), self._storage.is_durable
        plan = plan_takeover(store.header, store.pending(), position, log, is_durable=is_durable, standing=standing)
        _report_gone(partition, plan)
        if is_replaced:
            # What comes of these records may have been published before, by ids of the other format.
            end = max(log.stop, plan.offset) + standing.window
            plan = replace(plan, heal_offset=max(plan.heal_offset, end))
        plan = self._with_orders(partition, store.header, plan)
        owned = OwnedPartition(
            partition,
            store,
            plan,
            named_source(source, self._settings.events, self._settings.mapping),
            is_durable=is_durable,
            waits_for_handled=self._settings.acknowledge_handled,
            done_characters=self._settings.done_characters,
        )
        if position is not None:
            owned.positions.take_over(position.offset)
        fields = {"partition": str(partition)}
        if plan.must_heal:
            _log.warning(
                "the storage of %s does not know the commit that its position stands on: the storage was lost or restored, or "
                "the position was reset. Reading from offset %d; output of records below offset %d is marked possible-duplicate",
                partition, plan.offset, plan.heal_offset, extra=fields,
            )  # fmt: skip
            if standing.window:
                _log.error(
                    "%s: what its source got acknowledged since the storage's last commit is lost", partition, extra=fields
                )
            self._fence(owned, position or Position(plan.offset, ""))
            self._commit_heal(owned, plan.lost_orders)
            self.heals += 1
        elif is_replaced:
            _log.warning(
                "what is stored of %s is of another format of events. Output of records below offset %d is marked "
                "possible-duplicate", partition, plan.heal_offset, extra=fields,
            )  # fmt: skip
            # What is beyond a position, and that a sink is new, would be forgotten if this ended before the commit.
            if position is not None and position.is_whole and not position.beyond:
                self._fence(owned, position)
            elif position is not None and not position.is_whole:
                self._refuse_outdated(partition, position)
            self._commit_heal(owned)
        elif plan.must_mark:
            _log.warning(
                "a sink of %s has no marker: it is new, or its markers were deleted. Output that is not published yet is marked "
                "possible-duplicate", partition, extra=fields,
            )  # fmt: skip
            assert position is not None, "without one nothing is known of sinks"
            self._refuse_outdated(partition, position)
            self._commit_heal(owned)
        is_whole = position is None or position.is_whole
        # All that is pending is published, and the last owner died before it wrote the position.
        is_behind = position is not None and bool(position.beyond) and not plan.pending
        return owned, plan.is_new or plan.must_heal or not is_whole or is_behind

    def _with_orders(self, partition: Partition, header: Header, plan: Takeover) -> Takeover:
        """Return the plan with what is known of the partition's orders, and the outcomes of those that the storage has lost.

        A storage without durability knows nothing after a restart: older orders are not executed again. A storage that has lost
        the whole partition continues with new orders, too, and reports the others as lost.
        """
        orders = PartitionOrders.decode(header.orders)
        if not self._storage.is_durable:
            return replace(plan, orders=PartitionOrders(self._orders.bounds(partition).stop))
        if not plan.must_heal:
            return replace(plan, orders=orders)
        # The end is looked up first: an order that comes meanwhile is read and executed as usual.
        end = self._orders.bounds(partition).stop
        if not header.is_empty:
            return replace(plan, orders=replace(orders, heal_offset=max(orders.heal_offset, end)))
        lost = lost_by_heal(self._orders.find_without_outcome(partition), end, self._tools.clock.now())
        return replace(plan, orders=PartitionOrders(end, end), lost_orders=lost)

    def _fence(self, owned: OwnedPartition, position: Position) -> None:
        """Publish the position unchanged. This fails for a zombie, which must not heal, nor accept another format."""
        same = Position(position.offset, position.metadata)
        self._transport.publish([PartitionOutput(owned.partition, (), same)])

    def _refuse_outdated(self, partition: Partition, position: Position) -> None:
        """Refuse a takeover by a worker that was paused after it had read the position, while another one published.

        To fence would give the new sink a marker, as if it had what is pending. But sinks were fenced when the position was read,
        and the storage was opened since: if the position is the same now, only this worker can change anything.
        """
        if self._transport.position(partition) != position:
            raise PublishRefused(f"another worker publishes for {partition}")

    def _commit_heal(self, owned: OwnedPartition, lost: Sequence[OrderOutcome] = ()) -> None:
        commit = owned.healing_commit(self._tools.random_token(), lost)
        owned.store.commit(commit)
        owned.note_committed(commit, (), self._tools.clock.now())

    def _has_replaced_events(self, store: PartitionStore) -> bool:
        """Return whether what is stored is of another format, which an operator has named.

        Raises:
            ConfigurationError: The operator has not named it: handled ids of another format match no more.
        """
        (_, stored, mapping), settings = source_of(store.header), self._settings
        if store.header.is_empty or stored == settings.events or not self._storage.is_durable:
            return False
        if stored == settings.replaced_events:
            return True
        if not store.has_units():
            return False  # All that it read became dead letters, or is forgotten.
        raise ConfigurationError(
            settings.events_key,
            f"events are read as {settings.events} now, and what is stored was read as {stored}"
            f"{changed_places(mapping, settings.mapping)}: an event that comes again would "
            f'not be recognised. Configure {stored} again. Or set replaces = "{stored}" beside this key: then the service '
            "continues with what is stored, and its output is marked possible-duplicate",
        )

    def _refuse_other_strategy(self, waiting: Iterable[tuple[str, Waits]]) -> None:
        for unit, waits in waiting:
            if waits.strategy != self._settings.strategy:
                raise strategy_changed(
                    self._settings.strategy_key, waits.strategy, self._settings.strategy, f"unit {unit!r} waits"
                )


def _refuse_other_source(partition: Partition, header: Header, source: str) -> None:
    """Refuse a storage that belongs to another log: its offsets would skip records or use numbers twice."""
    known = source_of(header).source
    if known and source and known != source:
        problem = (
            f"the storage knows it as {known}, it is {source} now: the topic was recreated, or its group, its queue, its "
            "selector or the order of the queues was changed. If the waiting envelopes in the storage may be given up, set "
            "another storage.namespace (embedded: another file); else restore what was there"
        )
        raise TransportRefused(str(partition), problem)


def _refuse_moved(partition: Partition, position: Position | None) -> None:
    """Refuse a position whose done offsets were written for another position."""
    metadata = find_metadata(position.metadata) if position is not None else None
    if position is not None and metadata is not None and metadata.position not in (None, position.offset):
        problem = (
            f"its position is offset {position.offset}, but the metadata of the position was written for offset "
            f"{metadata.position}: one was changed without the other. Set the old offset again. Or, to read from the new offset "
            "and to send all notifications behind it again, set the new offset without metadata, as kafka-consumer-groups does "
            "(files: an empty metadata in positions.json)"
        )
        raise TransportRefused(str(partition), problem)


def _report_gone(partition: Partition, plan: Takeover) -> None:
    """Report records that were never handled and that the log no longer has. Only an operator may accept such a loss.

    The loss is accepted if the operator set the group's position, and it is logged only. It is also logged only if the storage
    went back behind what was published. A position that expired at the brokers is no acceptance.

    Raises:
        TransportRefused: The loss is not accepted.
    """
    if not plan.gone:
        return
    which = (
        f"according to the storage, the records {plan.gone.start} to {plan.gone.stop - 1} were never handled and are gone: "
        "the topic's retention has deleted them, or they were archived from the file"
    )
    if not plan.must_heal or plan.has_expired:
        remedy = (
            "Raise the topic's retention, or put the archived records back. To continue without them, reset the group's "
            "position to the earliest, or move positions.json away"
        )
        if plan.done is not None:
            remedy += "; records behind them that were handled are then notified once more"
        raise TransportRefused(str(partition), f"{which}. {remedy}")
    _log.error("%s: %s", partition, which, extra={"partition": str(partition)})
