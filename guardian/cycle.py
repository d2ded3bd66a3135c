"""The cycle of a worker: poll → load → decide → commit → publish with positions. All I/O on records happens here.

In terms of stream processing, a cycle is the interval between two checkpoints. To drain is to finish the cycle. A checkpoint is
the cycle's commit. A reset goes back to the last acknowledged position.
"""

import logging
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import pairwise
from typing import NamedTuple

from guardian.actor_gateway import ActorsFailed
from guardian.guardian_actor import Escalated
from guardian.headers import as_cut
from guardian.metrics import CycleTimes, KeysOfUnits, Metrics
from guardian.owned_partition import OwnedPartition
from guardian.partition_orders import OrderRules, PartitionOrders, TakenOrders, take_orders
from guardian.partitions import CycleSettings, Partitions, Servers, Tools
from guardian.ports import PartitionOutput, Polled, PublishRefused, TransportRefused, TransportUnavailable
from guardian.region import IntervalTimes, MustReset, Region, RegionState
from guardian.sizes import BatchSize, PublicationSize
from resequencer.batch import UnitKey
from resequencer.clock import Instant
from resequencer.dead_letter import DeadLetter
from resequencer.errors import OwnershipLost, ResequencerError
from resequencer.event import Event, Refusal
from resequencer.order import OrderOutcome
from resequencer.printable import printable
from resequencer.record import Partition
from resequencer.storage_port import Commit, Snapshot
from resequencer.turn.turn import Output, Turn

_log = logging.getLogger("resequencer.guardian")


_CYCLE_MS = 1_000
"""Target duration of a cycle. A worker that has to stop finishes its cycle first, and has 30 s for that."""

_BYTES_OF_ONE = 64 * 1024
"""For the batch size, this many bytes of output count as one record. So much output does not make records look slow."""

_ORDERS = 100
"""The most orders of a partition that one cycle executes."""

_WORDS_OF_ONE = 300
"""How many characters of a dead letter's error are logged."""

_ENDS_LAST_MS = 5_000
"""For how long the ends of the logs that a poll found are taken for those of now."""

_REJOIN_MS = 200
"""How long the transport may take to follow its group after it refused a publication, before the next try."""


class Arrivals(NamedTuple):
    """The decoded records of a poll: each unit's envelopes in order of arrival, and each partition's undecodable records."""

    envelopes: Mapping[UnitKey, tuple[Event, ...]]
    dead_letters: Mapping[Partition, Sequence[DeadLetter]]


class PreparedCommit(NamedTuple):
    """A commit with the output and the turns that are in it. `orders` are what the partition knew of its orders before it."""

    owned: OwnedPartition
    commit: Commit
    output: Sequence[Output]
    turns: Sequence[Turn]
    orders: PartitionOrders


class Cycle:
    """Runs cycles over the partitions that are assigned to this worker. One thread, one after the other."""

    def __init__(self, servers: Servers, tools: Tools, settings: CycleSettings) -> None:
        self._transport, self._storage, self._actors, self._orders = servers
        self._tools = tools
        self._settings = settings
        self._next_wake_at: Instant | None = None
        self._is_blocked = False
        self.is_finishing = False
        """Whether nothing more is read, because the worker drains."""
        self.partitions = Partitions(servers, tools, settings)
        self._batch_size = BatchSize(settings.batch_size, _CYCLE_MS)
        self._portions = PublicationSize(self._transport, tools.clock, settings.portion_bytes)
        self.metrics = Metrics()
        self._keys = KeysOfUnits() if settings.watches_keys else None
        self.region = Region(settings.region)
        self._has_published = False
        self._is_publishing = False
        """Whether a publication may have begun whose outcome is not known."""
        self.refusal: str | None = None
        """Why the transport refuses to publish at the moment although the output answers; None if it does not refuse."""
        self.orders_problem: str | None = None
        """Why orders are not read at the moment; None if they are. Nothing else waits for them."""

    def run_once(self) -> bool:
        """Run one cycle and return whether anything was committed.

        Raises:
            Stopped: The worker has to stop while a server is unavailable; nothing is lost.
            Escalated: A unit failed, and the worker must end.
            TransportRefused, MustReset: The partitions must be dropped and taken over again; what is not committed is read again.
        """
        self._has_published, self._is_publishing = False, True  # A takeover publishes, too.
        self.partitions.follow_assignment()
        self._is_publishing = False
        if self._owes():
            # What was committed is the work of an interval, also if a reset or another owner came in between.
            self.region.note_committed()
            self.region.enter(RegionState.PUBLISHING)
            self._publish([owned for owned in self.partitions.owned.values() if owned.unpublished])
            self._follow_group(0)
            self._end_interval()
            return False
        polled_at = self._tools.clock.now()
        polled = self._tools.retry.until_answered("source", partial(self._poll, polled_at))
        began_at = self._tools.clock.now()
        self.region.enter(RegionState.DRAINING)
        arrivals = self._decode(polled)
        self._note_reach(polled, polled_at, began_at)
        orders = self._take_orders({**polled.log_ends, **polled.ends})
        turns = self._decide(polled_at, polled, arrivals, orders)
        decided_at = self._tools.clock.now()
        self.region.enter(RegionState.CHECKPOINTING)
        committed = self._commit_all(polled.next_offsets, arrivals, turns, orders)
        committed_at = self._tools.clock.now()
        self._actors.begin_calls()
        self.region.enter(RegionState.PUBLISHING)
        # Partitions in which nothing happened are included: their last positions may not have been due yet.
        every_ms = self._settings.acknowledge_every_ms
        self._publish([owned for owned in self.partitions.owned.values() if owned.has_news(committed_at, every_ms)])
        self._note_times(polled, turns, (polled_at, began_at, decided_at, committed_at, self._tools.clock.now()))
        if committed:
            self.region.note_committed()
        self._end_interval()
        return bool(committed)

    def drop_all(self) -> None:
        """Drop everything from memory that is not committed; the next cycle takes over what is assigned."""
        self.partitions.drop_all()
        self._next_wake_at, self._is_blocked, self.refusal = None, False, None
        self._is_publishing = True  # Until everything is taken over.

    def knows_ends(self, now: Instant) -> bool:
        """Whether the ends of the last poll are those of now. They are not while a server is unavailable or a cycle is long."""
        polled_at = self.metrics.polled_at
        return self._tools.retry.unavailable is None and polled_at is not None and 0 <= now - polled_at <= _ENDS_LAST_MS

    def stay_in_group(self) -> None:
        """Poll without reading records. A source that does not answer or refuses changes nothing."""
        with suppress(TransportUnavailable, TransportRefused):
            self._transport.poll(0, 0, self._transport.assignment())

    def expire(self) -> int:
        """Remove expired units from the storage and return how many were removed.

        A unit has expired when nothing waits in it and it did not change for the retention. A call does a bounded amount of work.
        Call it between two cycles from time to time, and soon again if it removed many.
        """
        active, gone = self._actors.active(), 0
        for partition, owned in list(self.partitions.owned.items()):
            expire = partial(owned.store.expire, owned.last_expired(self._settings.retention_ms), active.get(partition, ()))
            try:
                gone += self._tools.retry.until_answered("storage", expire)
            except OwnershipLost as error:
                self.partitions.lose(partition, error)
        return gone

    def close(self) -> None:
        """Publish the positions that moved since they were last published. Called once, when the worker shuts down."""
        self._publish([owned for owned in self.partitions.owned.values() if owned.positions.has_moved()])

    def last_positions(self, error: Exception) -> Sequence[PartitionOutput]:
        """Return what a worker that ends with `error` may still publish: positions of committed work, without output.

        There is none after an error of a server, or of the configuration: what was refused may be this worker, or its source may
        be another one now. There is none while the outcome of a publication is unknown, or was a refusal. A partition with output
        that is not published has none: the output may be of a commit that failed. The next owner publishes what is pending.
        """
        is_refused = isinstance(error, ResequencerError) and not isinstance(error, Escalated | ActorsFailed)
        if is_refused or self._is_publishing or self.refusal is not None:
            return ()
        owned = self.partitions.owned.values()
        return [each.output(0) for each in owned if not each.unpublished and each.positions.has_moved()]

    def _end_interval(self) -> None:
        """Tell the region whether a participant refuses something, and that the interval is complete if nothing is owed."""
        now, refused = self._tools.clock.now(), self.partitions.postponed_takeovers.refused
        why = self.refusal if self.refusal is not None else refused.reason if refused is not None else None
        if why is not None:
            self.region.note_refused(why, now, self._tools.retry.is_stopping)
        elif self._has_published:
            self.region.note_accepted()
        if not self._owes():
            self.region.complete(now)

    def _note_times(self, polled: Polled, turns: Sequence[Turn], instants: Sequence[Instant]) -> None:
        """Record how long the steps took. `instants` enclose four steps: poll, decide, commit, publish."""
        taken = max(len(polled.records), len(turns))
        output_bytes = sum([each.output_bytes for each in turns])
        self._batch_size.note(max(taken, output_bytes // _BYTES_OF_ONE), instants[-1] - instants[1])
        if taken:
            spans = [max(0, after - before) for before, after in pairwise(instants)]
            self.metrics.note_cycle(CycleTimes(len(polled.records), *spans))
            self.region.note_times(IntervalTimes(*spans[1:]))

    def _owes(self) -> bool:
        """Whether committed output is not published yet. Until it is, nothing is read, or memory would grow."""
        return any(owned.unpublished for owned in self.partitions.owned.values())

    def _poll(self, now: Instant) -> Polled:
        wakes_at = [each for each in (self._next_wake_at, self.partitions.postponed_takeovers.next_at) if each is not None]
        idle_ms = max(0, min([self._settings.idle_ms, *(each - now for each in wakes_at)]))
        if (calls_ms := self._actors.calls_due_in_ms()) is not None:
            idle_ms = min(idle_ms, calls_ms)
        at_once = 1 if self._is_blocked else self._at_once
        capacities = self._capacities()
        full = [name for name, room in capacities.items() if not room]
        is_behind, crowded = self._actors.is_behind, self._actors.crowded
        full += [name for name, owned in self.partitions.owned.items() if is_behind or name in crowded or owned.orders.is_paused]
        if self.is_finishing:
            return self._transport.poll(0, 0)
        return self._transport.poll(min([at_once, *(each for each in capacities.values() if each)]), idle_ms, full)

    @property
    def _at_once(self) -> int:
        return self._settings.batch_size if self._settings.takes_whole_batches else self._batch_size.at_once

    def _capacities(self) -> dict[Partition, int]:
        """Return how many records each partition may read, for partitions that store done offsets in the position's metadata."""
        capacities = {name: owned.room for name, owned in self.partitions.owned.items()}
        return {name: room for name, room in capacities.items() if room is not None}

    def _decode(self, polled: Polled) -> Arrivals:
        envelopes: defaultdict[Partition, dict[str, list[Event]]] = defaultdict(dict)
        dead_letters: defaultdict[Partition, list[DeadLetter]] = defaultdict(list)
        offsets: defaultdict[Partition, list[int]] = defaultdict(list)
        written_at: dict[Partition, Instant | None] = {}
        now, counts, owned = self._tools.clock.now(), self.metrics.counts, self.partitions.owned
        decode, before, keys = self._tools.decoder.decode, None, self._keys
        for record in polled.records:
            partition, offset = record.origin
            if partition is not before:
                if partition not in owned:
                    continue  # It was assigned after this cycle read the assignment. It is read again after the takeover.
                before, units, read = partition, envelopes[partition], offsets[partition]
            read.append(offset)
            written_at[partition] = record.written_at
            decoded = decode(record)
            if isinstance(decoded, Refusal):
                dead_letters[partition].append(DeadLetter(as_cut(record), decoded.reason, decoded.error, now))
                continue
            unit = decoded.unit
            if record.key is not None and record.key != unit.encode():
                counts["differing_keys"] += 1  # The record is accepted all the same: only its partition matters.
            if keys is not None and keys.is_found(unit, record):
                counts["several_keys"] += 1
            if unit in units:
                units[unit].append(decoded)
            else:
                units[unit] = [decoded]
        counts["records"] += len(polled.records)
        for partition in polled.next_offsets.keys() & owned.keys():
            reached, state = polled.next_offsets[partition], polled.source_states.get(partition)
            owned[partition].note_read(offsets[partition], reached, written_at.get(partition), state)
        by_unit = {UnitKey(name, unit): tuple(came) for name, units in envelopes.items() for unit, came in units.items()}
        return Arrivals(by_unit, dead_letters)

    def _note_reach(self, polled: Polled, polled_at: Instant, answered_at: Instant) -> None:
        metrics = self.metrics
        metrics.log_ends, metrics.readable_ends, metrics.polled_at = polled.log_ends, polled.ends, polled_at
        for name, end in polled.log_ends.items():
            if name in self.partitions.owned:
                self.partitions.owned[name].note_reach(end, polled_at, answered_at)

    def _take_orders(self, ends: Mapping[Partition, int]) -> Mapping[Partition, TakenOrders]:
        """Read the orders of the owned partitions. If that fails, everything else continues, and the next cycle tries again."""
        owned, now = self.partitions.owned, self._tools.clock.now()
        try:
            batches = self._orders.poll({name: each.orders.next_offset for name, each in owned.items()}, _ORDERS)
        except (TransportUnavailable, TransportRefused) as error:
            self.orders_problem = f"orders are not read at the moment: {error}"
            self._tools.problem_log.note("orders", self.orders_problem, now, {})
            return {}
        settings = self._settings
        self.orders_problem, rules = None, OrderRules(settings.approval, self._storage.is_durable, settings.backlog_wait_ms)
        taken: dict[Partition, TakenOrders] = {}
        for name in batches.keys() & owned.keys():
            unread_to = ends[name] if owned[name].read_to < ends.get(name, 0) else None
            taken[name] = take_orders(owned[name].orders, batches[name], rules, now, unread_to=unread_to)
        return taken

    def _decide(
        self, polled_at: Instant, polled: Polled, arrivals: Arrivals, taken: Mapping[Partition, TakenOrders]
    ) -> Sequence[Turn]:
        # Where nothing more may be read, a deadline that waited for its backlog would wait for ever.
        read_to = {
            name: owned.read_to if owned.room != 0 else polled.ends.get(name, owned.read_to)
            for name, owned in self.partitions.owned.items()
        }
        ordered = {UnitKey(name, unit): tuple(orders) for name, each in taken.items() for unit, orders in each.of_units.items()}
        answers = self._actors.take_answers()
        units = tuple(dict.fromkeys((*arrivals.envelopes, *ordered, *answers)))
        prepared = self._actors.prepare(polled_at, units, read_to, polled.ends, self._batch_size.at_once)
        snapshots = self._load(prepared.unknown)
        owned = self.partitions.owned
        self._note_activity(prepared.stopped, arrivals, read_to, polled.log_ends)
        known = {key: came for key, came in arrivals.envelopes.items() if key.partition in owned}
        orders = {key: each for key, each in ordered.items() if key.partition in owned}
        answered = {key: each for key, each in answers.items() if key.partition in owned}
        began_at = self._tools.clock.now()
        decided = self._actors.decide(began_at, known, snapshots, orders, answered)
        self._check_drain(max(len(arrivals.envelopes), len(decided.turns)), self._tools.clock.now() - began_at)
        self._next_wake_at, self._is_blocked = decided.next_wake_at, decided.is_blocked
        return decided.turns

    def _check_drain(self, count: int, took_ms: int) -> None:
        """Raise `MustReset` if the turns took too long. Then the next interval is smaller, unless `takes_whole_batches`.

        A storage that is not durable would forget what it has stashed, so its intervals take as long as they take.
        """
        if not self._storage.is_durable:
            return
        try:
            self.region.check_drain(took_ms, count, self._tools.retry.is_stopping)
        except MustReset:
            self._batch_size.note(count, took_ms)
            raise

    def _note_activity(
        self,
        stopped: Iterable[UnitKey],
        arrivals: Arrivals,
        read_to: Mapping[Partition, int],
        log_ends: Mapping[Partition, int],
    ) -> None:
        """Note which units are active and which fell idle, for storages without durability.

        `log_ends` are the true ends of the logs: a hanging transaction may hold back records of an idle unit.
        """
        if not self._settings.acknowledge_handled:
            return
        owned = self.partitions.owned
        for key in stopped:
            if key.partition in owned:
                owned[key.partition].note_idle(key.unit, log_ends.get(key.partition, 0))
        for key, came in arrivals.envelopes.items():
            if key.partition in owned:
                owned[key.partition].note_active(key.unit, came[0].record.origin.offset)
        for name, each in owned.items():
            each.let_idle_go(read_to[name])

    def _load(self, unknown: Iterable[UnitKey]) -> dict[UnitKey, Snapshot]:
        """Load the snapshots of units without an actor, with one read per partition, side by side."""
        wanted: defaultdict[Partition, list[str]] = defaultdict(list)
        for key in unknown:
            wanted[key.partition].append(key.unit)
        snapshots: dict[UnitKey, Snapshot] = {}
        loads = [partial(self.partitions.owned[partition].store.load, units) for partition, units in wanted.items()]
        for partition, load in zip(wanted, self._storage.side_by_side(loads), strict=True):
            try:
                loaded = self._tools.retry.until_answered("storage", load)
            except OwnershipLost as error:
                self.partitions.lose(partition, error)
            else:
                snapshots |= {UnitKey(partition, unit): each for unit, each in loaded.items()}
        return snapshots

    def _commit_all(
        self,
        moved: Collection[Partition],
        arrivals: Arrivals,
        turns: Sequence[Turn],
        orders: Mapping[Partition, TakenOrders],
    ) -> list[OwnedPartition]:
        """Commit every partition in which something happened, side by side, and return those whose commit succeeded."""
        taken: defaultdict[Partition, list[Turn]] = defaultdict(list)
        for each in turns:
            taken[each.key.partition].append(each)
        names = {*moved, *taken, *orders}
        prepared = [
            self._prepared(owned, arrivals.dead_letters.get(name, ()), taken.get(name, ()), orders.get(name))
            for name, owned in self.partitions.owned.items()
            if name in names
        ]
        began_at = self._tools.clock.now()
        calls = self._storage.side_by_side([partial(each.owned.store.commit, each.commit) for each in prepared])
        made_ms = self._tools.clock.now() - began_at
        return [each.owned for each, call in zip(prepared, calls, strict=True) if self._commit_partition(each, call, made_ms)]

    def _prepared(
        self, owned: OwnedPartition, dead_letters: Sequence[DeadLetter], turns: Sequence[Turn], orders: TakenOrders | None
    ) -> PreparedCommit:
        output = [*dead_letters, *[each for turn in turns for each in turn.output]]
        if orders is not None:
            output += orders.outcomes
        before = owned.orders
        commit = owned.next_commit(output, turns, self._tools.random_token(), None if orders is None else orders.after)
        return PreparedCommit(owned, commit, output, turns, before)

    def _commit_partition(self, prepared: PreparedCommit, call: Callable[[], None], made_ms: int) -> bool:
        """Get the outcome of a commit. It took `made_ms` where commits were made side by side."""
        owned, commit, output, turns, before = prepared
        began_at = self._tools.clock.now()
        try:
            self._tools.retry.until_answered("storage", call)
        except OwnershipLost as error:
            self.partitions.lose(owned.partition, error)
            return False
        committed_at = self._tools.clock.now()
        self.metrics.histograms.storage_commit.observe(made_ms + committed_at - began_at)
        owned.note_committed(commit, turns, committed_at)
        if owned.orders.pauses != before.pauses:
            self._actors.note_pauses(owned.partition, owned.orders.pauses)
        self._account(owned.partition, output, turns)
        return True

    def _publish(self, news: Sequence[OwnedPartition]) -> None:
        """Publish one portion, on Kafka in one transaction. The rest is published before anything else is read."""
        if not news:
            self.refusal = None  # The partition whose output was refused is no longer owned.
            return
        began_at, self._is_publishing = self._tools.clock.now(), True
        try:
            self._tools.retry.until_answered("output", partial(self._portions.publish, news))
        except PublishRefused as error:
            self._note_refused(error)
            return
        self.refusal, self._has_published, self._is_publishing = None, True, False
        self._note_published(news, began_at, self._tools.clock.now())

    def _note_published(self, news: Iterable[OwnedPartition], began_at: Instant, now: Instant) -> None:
        self.metrics.histograms.publication.observe(now - began_at)
        for owned in news:
            self.metrics.note_published(owned.take_published(), now)

    def _note_refused(self, error: PublishRefused) -> None:
        """Keep the refused output pending, and let the transport find out which partitions are still assigned."""
        if self.refusal is None:
            _log.warning("publishing was refused, what is committed stays pending and is published later: %s", error)
        self.refusal = str(error)
        self.metrics.counts["publications_refused"] += 1
        self._follow_group(_REJOIN_MS)

    def _follow_group(self, timeout_ms: int) -> None:
        """Poll without reading records: the group removes a member that does not poll for too long."""
        self._tools.retry.until_answered("source", partial(self._transport.poll, 0, timeout_ms))

    def _account(self, partition: Partition, output: Sequence[Output], turns: Sequence[Turn]) -> None:
        for each in self.metrics.add_output(output):
            if isinstance(each, DeadLetter):
                self._note_dead(each)
            elif isinstance(each, OrderOutcome):
                _log_outcome(partition, each)
        self.metrics.add_turns(turns)
        for turn in turns:
            for release in turn.releases:
                _log.warning(
                    "released %s of unit %s after %.1f s (%s): missing %s",
                    "1 envelope" if release.envelopes == 1 else f"{release.envelopes} envelopes",
                    release.unit, release.waited_ms / 1000, release.cause.value, release.missing,
                    extra={"unit": release.unit, "partition": str(partition), "position": release.source_position},
                )  # fmt: skip

    def _note_dead(self, dead_letter: DeadLetter) -> None:
        origin, reason = dead_letter.record.origin, dead_letter.reason.value
        text = printable(f"{origin} is a dead letter, {reason}: {dead_letter.error[:_WORDS_OF_ONE]}")
        places = {"partition": str(origin.partition), "position": str(origin)}
        self._tools.problem_log.note(f"dead letters, {reason}", text, self._tools.clock.now(), places)


def _log_outcome(partition: Partition, outcome: OrderOutcome) -> None:
    order = outcome.order
    places = {"partition": str(partition)}
    if order is None:
        text = f"order {outcome.order_offset} of {partition}: {outcome.result.value}"
        _log.warning("%s: %s", text, outcome.text, extra=places)
        return
    if order.unit is not None:
        places["unit"] = order.unit
    text = printable(f"{order.kind.value} of {order.unit or partition}, ordered by {order.by}: {outcome.result.value}")
    _log.info("%s: %s", text, printable(outcome.text), extra=places)
