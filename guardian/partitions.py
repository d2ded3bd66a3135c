"""The partitions of a worker: taken over, healed, dropped. The steps are those of docs/decisions/0004-exactly-once.md."""

import logging
from collections.abc import Callable, Iterable
from typing import NamedTuple

import msgspec

from connectors.port import PartitionOutput, Position, PublishRefused, Transport, TransportRefused
from domain.clock import Clock
from domain.decoding import EnvelopeDecoder
from domain.errors import OwnershipLost, TransientError, Withheld
from domain.record import Origin, Partition
from guardian.actor_gateway import ActorGateway
from guardian.backoff import BackoffSettings, RetryWithBackoff, is_of_storage
from guardian.log_rate_limit import LogRateLimit
from guardian.messages import Arm, Drop
from guardian.owned_partition import OwnedPartition
from guardian.takeover import Takeover, find_metadata, plan_takeover
from guardian.takeover_backoff import TakeoverBackoff
from resequencer.messages import UnitKey
from resequencer.unit_codec import strategy_changed
from storage.port import Header, PartitionStore, Storage, Waits

_log = logging.getLogger("resequencer.guardian")


class CycleSettings(msgspec.Struct, frozen=True):
    """`batch_size` records a poll at most; `idle_ms` is how long an empty poll waits for the first one.

    `strategy` is its name with its keys, as states carry it. With `acknowledge_handled` a position waits for the oldest
    stashed envelope of its partition: the source is the store. What is done beyond the position rides in its metadata, in
    at most `done_characters`; None for as many as it takes, where it is left out rather than that the intake rests.
    A unit in which nothing waits is remembered for `retention_ms` of its partition's caught-up clock. At most `portion_bytes`
    leave at once.
    """

    strategy: str
    batch_size: int = 500
    idle_ms: int = 500
    acknowledge_handled: bool = False
    done_characters: int | None = None
    retention_ms: int = 4 * 3_600_000
    portion_bytes: int = 16 << 20


class Servers(NamedTuple):
    """What a worker does its I/O on, and whom it asks."""

    transport: Transport
    storage: Storage
    actors: ActorGateway


class Tools(NamedTuple):
    """What a worker is handed beside its servers."""

    decoder: EnvelopeDecoder
    clock: Clock
    retry: RetryWithBackoff
    random_token: Callable[[], str]
    mishaps: LogRateLimit


class Partitions:
    """Which partitions are owned, and which takeovers are put off.

    `heals` counts how often a storage had forgotten, `losses` how often a newer owner came.
    """

    def __init__(self, servers: Servers, tools: Tools, settings: CycleSettings) -> None:
        self._transport, self._storage, self._actors = servers
        self._tools = tools
        self._settings = settings
        self.owned: dict[Partition, OwnedPartition] = {}
        self.put_off_takeovers = TakeoverBackoff(BackoffSettings())
        self.heals = 0
        self.losses = 0

    @property
    def is_healing(self) -> bool:
        """Records that a storage has forgotten are being read again."""
        return any(owned.is_healing for owned in self.owned.values())

    def has_left(self, origin: Origin) -> bool:
        """What this record led to has left, and the record is not read again after a restart."""
        owned = self.owned.get(origin.partition)
        return owned is not None and owned.has_left(origin.offset)

    def follow_assignment(self) -> None:
        """Drop what is no longer assigned, take over what is new. What cannot be taken over yet is tried again later: a storage
        or an output that is away, or an undecided publication of its last owner, holds up no other partition.
        """
        assigned = set(self._tools.retry.until_answered("source", self._transport.assignment))
        for partition in self.owned.keys() - assigned:
            told = {"partition": str(partition)}
            _log.warning("%s is no longer ours: what waits in it stays in the storage until it is again", partition, extra=told)
            self._drop(partition)
        for partition in self.put_off_takeovers.untaken.keys() - assigned:
            self.put_off_takeovers.forget(partition)
        for partition in sorted(assigned - self.owned.keys()):
            if self.put_off_takeovers.is_due(partition, self._tools.clock.now()):
                self._try_to_take_over(partition)

    def lose(self, partition: Partition, error: Exception) -> None:
        """A newer owner came. If it is still assigned, it is taken over again: a zombie must not stop the rightful owner."""
        _log.warning("lost %s: %s", partition, error, extra={"partition": str(partition)})
        self.losses += 1
        self._drop(partition)

    def _drop(self, partition: Partition) -> None:
        """Its units leave memory; nothing is committed: what is pending is the hand-over."""
        del self.owned[partition]
        self._actors.drop(Drop(partition))
        self._storage.release(partition)

    def _try_to_take_over(self, partition: Partition) -> None:
        try:
            self.take_over(partition)
        except OwnershipLost as error:
            # Another owner opened it meanwhile: whom it is assigned to comes last.
            self.losses += 1
            self._put_off(partition, "storage", error)
        except (TransientError, Withheld, PublishRefused) as error:
            if isinstance(error, Withheld) and not self._tools.retry.can_wait_for(error):
                raise
            self._put_off(partition, "storage" if is_of_storage(error) else "output", error)
        else:
            self.put_off_takeovers.forget(partition)

    def _put_off(self, partition: Partition, what: str, error: Exception) -> None:
        if self.put_off_takeovers.put_off(partition, what, str(error), self._tools.clock.now()):
            told = {"partition": str(partition)}
            _log.warning("the %s is away, taking %s over is tried again until it is back: %s", what, partition, error, extra=told)

    def take_over(self, partition: Partition) -> None:
        """May be repeated from the start at any failure: until it is owned, nothing of it is in memory."""
        position, source = self._transport.position(partition), self._transport.source(partition)
        store = self._storage.open(partition)
        _refuse_other_source(partition, store.header, source)
        waiting = store.waiting()
        self._refuse_other_strategy(waiting)
        _refuse_moved(partition, position)
        owned, is_news = self._reconcile(partition, store, position, source)
        if owned.done_to > owned.read_to:
            self._transport.seek(partition, owned.done_to)  # Refused where the log is another one by now.
        if is_news:
            output = owned.output(0)
            self._transport.publish([output])
            owned.note_published(output, self._tools.clock.now())
        self._transport.seek(partition, owned.read_to)
        self._actors.arm(Arm([(UnitKey(partition, unit), waits) for unit, waits in waiting]))
        self.owned[partition] = owned
        told = {"partition": str(partition), "position": owned.read_to}
        _log.info("took over %s at offset %d; units that wait: %d", partition, owned.read_to, len(waiting), extra=told)

    def _reconcile(
        self, partition: Partition, store: PartitionStore, position: Position | None, source: str
    ) -> tuple[OwnedPartition, bool]:
        log = range(self._transport.start_offset(partition), self._transport.end_offset(partition))
        plan = plan_takeover(store.header, store.pending(), position, log, is_durable=self._storage.is_durable)
        _report_gone(partition, plan)
        owned = OwnedPartition(
            partition,
            store,
            plan,
            source,
            is_durable=self._storage.is_durable,
            waits_for_handled=self._settings.acknowledge_handled,
            done_characters=self._settings.done_characters,
        )
        if plan.must_heal:
            _log.warning(
                "the storage of %s does not know the commit that its position stands on: reading on from offset %d; "
                "what records below offset %d cause is marked possible-duplicate",
                partition, plan.offset, plan.heal_offset, extra={"partition": str(partition)},
            )  # fmt: skip
            self._heal(owned, position or Position(plan.offset, ""))
        return owned, plan.is_new or plan.must_heal

    def _heal(self, owned: OwnedPartition, position: Position) -> None:
        """The position as it was must be published once more before anything changes: a zombie may not heal."""
        same = Position(position.offset, position.metadata)
        self._transport.publish([PartitionOutput(owned.partition, (), same)])
        commit = owned.healing_commit(self._tools.random_token())
        owned.store.commit(commit)
        owned.note_committed(commit, (), self._tools.clock.now())
        self.heals += 1

    def _refuse_other_strategy(self, waiting: Iterable[tuple[str, Waits]]) -> None:
        for unit, waits in waiting:
            if waits.strategy != self._settings.strategy:
                raise strategy_changed(waits.strategy, self._settings.strategy, f"unit {unit!r} waits")


def _refuse_other_source(partition: Partition, header: Header, source: str) -> None:
    """Offsets of another log mean nothing here: reading on would skip records, or give numbers twice."""
    if header.source and source and header.source != source:
        problem = (
            f"the storage knows it as {header.source}, it is {source} now: the topic was made anew, or the group is another. If "
            "what waits in the storage may be given up, name another payment-status-notification.storage.namespace (embedded: "
            "another file); else bring the old topic or group back"
        )
        raise TransportRefused(str(partition), problem)


def _refuse_moved(partition: Partition, position: Position | None) -> None:
    """What is done beyond one position is not what is done beyond another."""
    metadata = find_metadata(position.metadata) if position is not None else None
    if position is not None and metadata is not None and metadata.position not in (None, position.offset):
        problem = (
            f"its position says offset {position.offset}, and what is done beyond it was written for offset {metadata.position}: "
            "one was changed without the other. Set the old offset; or, to read from the new one on and notify of everything "
            "behind it again, set it without metadata, as kafka-consumer-groups does (files: an empty metadata in positions.json)"
        )
        raise TransportRefused(str(partition), problem)


def _report_gone(partition: Partition, plan: Takeover) -> None:
    """Records that were never read and are not there any more: a loss that only a person may accept.

    Raises:
        TransportRefused: Unless a person set the group's position, and by that accepted it, or the storage went back behind what
            had left already. A position that the brokers let expire is no acceptance.
    """
    if not plan.gone:
        return
    which = (
        f"by what was stored, the records {plan.gone.start} to {plan.gone.stop - 1} were never handled and are gone: "
        "the topic's retention has taken them, or the archive of a file"
    )
    if not plan.must_heal or plan.has_expired:
        remedy = (
            "Have the topic keep its records longer, or put back what was archived; to go on without them, reset the group's "
            "position to the earliest, or move positions.json away"
        )
        if plan.done is not None:
            remedy += "; what was handled behind them is then notified once more"
        raise TransportRefused(str(partition), f"{which}. {remedy}")
    _log.error("%s: %s", partition, which, extra={"partition": str(partition)})
