"""The units of a guardian: which have an actor, which wait, which are to be woken or stopped. Pure bookkeeping."""

from collections import defaultdict
from collections.abc import Collection, Container, Iterable, Iterator, Mapping
from itertools import islice

import msgspec
from msgspec.structs import replace

from guardian.calls import Dependencies
from guardian.partition_orders import Pauses, is_paused, paused_ms, pauses_by_this_clock
from guardian.timers import Backlog, Timers, UnfinishedTurns
from resequencer.batch import UnitKey
from resequencer.clock import SKEW_MS, Instant
from resequencer.order import LONGEST_HOLD_MS
from resequencer.record import Partition
from resequencer.storage_port import WaitKind, Waits
from resequencer.turn.turn import Turn
from resequencer.unit import Ordered, Wake

_EVICTED_PART = 0.9
"""A worker's stash that exceeds its bound is reduced to this part of it, so that the next envelope does not exceed it again."""

_LOADED_PART = 0.125
"""The part of that bound that may be loaded at once for units to wake; at least one unit is loaded."""

_DEADLINE = WaitKind.DEADLINE
"""Named once: to read a member of an enumeration takes as long as five attributes, and this is asked after each turn."""

_WAKES = {WaitKind.RETRY: Wake.RETRY, WaitKind.HELD: Wake.HOLD_OVER, WaitKind.ORDERED: Wake.HOLD_OVER}
"""The kinds of waits that wake their unit as soon as they are due."""

_WITHOUT_TIMER = (WaitKind.REMAINDER, WaitKind.CALL)

_END_UNKNOWN_MS = 200
"""How long a deadline is postponed if nothing says where the log of its partition ends."""

AT_ONCE = 1_000
"""Default limit of units that are woken or stopped at once: a million idle units must not stop the reading."""


class UnitRegistrySettings(msgspec.Struct, frozen=True):
    """The bounds of a worker's units.

    `stash_bytes` bounds the records and data of the units in memory. `can_reload` is set if the storage keeps units that leave
    memory. Without it a unit leaves memory only when it is idle, after a turn that says what is to be stored. A unit that waits
    for a server leaves memory if it stashes more than `unit_stash` envelopes or `unit_bytes`, unless an envelope for it arrives
    in the same poll; while its handler is called, its partition is not read then. `budget_bytes` is about the maximum output of
    one turn; that of a cycle is two to four times as much. `longest_pause_ms` is the longest pause before an attempt,
    `longest_deadline_ms` the longest wait for a deadline.
    """

    idle_timeout_ms: int = 30_000
    stash_bytes: int = 512 * 1024 * 1024
    can_reload: bool = True
    unit_stash: int = 1_000
    unit_bytes: int = 64 * 1024 * 1024
    budget_bytes: int = 20 * 1024 * 1024
    longest_pause_ms: int = 30_000
    longest_deadline_ms: int = LONGEST_HOLD_MS


class Dues(msgspec.Struct, frozen=True):
    """The units to wake, each with its cause, and the units whose actors are to stop."""

    wakes: Mapping[UnitKey, Wake]
    stops: tuple[UnitKey, ...]


class UnitRegistry:
    """Keeps the timers and the memory bounds of a guardian's units.

    `waits` is in the order in which the units began to wait. `stashed` is the number of envelopes in their stashes, `held` the
    number of units that an order holds.
    """

    def __init__(self, settings: UnitRegistrySettings) -> None:
        self._settings = settings
        self._timers: Timers[UnitKey] = Timers()
        self._backlog = Backlog()
        self._dependencies = Dependencies()
        self._unfinished = UnfinishedTurns()
        # The bytes of each active unit's data. The unit with the latest turn comes last.
        self._active: dict[UnitKey, int] = {}
        # The units with an actor in which nothing waits, each with its last turn that changed something; the latest comes last.
        self._idle: dict[UnitKey, Instant] = {}
        # The units that are stored as they are now, whose actors stop next (without `can_reload`).
        self._stored: dict[UnitKey, None] = {}
        self._data_bytes = 0
        self._over: list[UnitKey] = []
        self._passed: dict[UnitKey, None] = {}
        self._stashed_bytes = 0
        self._is_behind = False
        self._latest: Instant = 0
        self._undated: list[UnitKey] = []
        # Units whose wait began in the future by this clock: the stored instant, and the instant at which that was noticed.
        self._ahead: dict[UnitKey, tuple[Instant, Instant]] = {}
        self._pauses: dict[Partition, Pauses] = {}
        # The units that stash more than their bound while their handler is called.
        self._crowded: dict[UnitKey, None] = {}
        # The units in which an order waits, with the offset up to which their partition must be read before. Few have one.
        self._ordered: dict[UnitKey, int] = {}
        self.waits: dict[UnitKey, Waits] = {}
        self.stashed = 0
        self.held = 0

    @property
    def active(self) -> int:
        """Units with an actor."""
        return len(self._active)

    def active_units(self) -> Mapping[Partition, set[str]]:
        """The units with an actor, by partition."""
        units: defaultdict[Partition, set[str]] = defaultdict(set)
        for key in self._active:
            units[key.partition].add(key.unit)
        return dict(units)

    @property
    def stashed_bytes(self) -> int:
        """The size of the stashed records in memory."""
        return self._stashed_bytes

    @property
    def backlogged(self) -> int:
        return len(self._backlog)

    @property
    def next_wake_at(self) -> Instant | None:
        """The latest instant for the next `dues`; 0 if some due units were not returned yet."""
        idle_at = next((at + self._settings.idle_timeout_ms for at in self._idle.values()), None)
        known = [each for each in (self._timers.next_at(), self._dependencies.next_at, idle_at) if each is not None]
        return 0 if self._is_behind or self._passed or self._unfinished else min(known, default=None)

    @property
    def unavailable(self) -> Mapping[str, int]:
        """The servers that handlers cannot reach, each with the number of units that wait for it."""
        return self._dependencies.waiting

    @property
    def is_blocked(self) -> bool:
        """Whether the remainders are larger than the output of one cycle. Records read now would only wait behind them."""
        return self._unfinished.stashed_bytes > 2 * self._settings.budget_bytes

    @property
    def crowded(self) -> Collection[Partition]:
        """The partitions in which a unit has a full stash while its handler is called."""
        return {key.partition for key in self._crowded} if self._crowded else ()

    @property
    def is_full(self) -> bool:
        """Whether the stashes exceed the bound of memory and cannot leave it."""
        return not self._settings.can_reload and self._stashed_bytes > self._settings.stash_bytes

    def arm(self, key: UnitKey, waits: Waits) -> None:
        """Add a unit that waits in storage without an actor. The next `dues` checks its instants against this worker's clock."""
        self._undated.append(key)
        self._remember(key, waits)
        self._arm(key, waits)

    def postpone(self, key: UnitKey, now: Instant) -> None:
        """Make a unit due again at once that was not woken as planned. A deadline does not wait for its backlog again."""
        waits = self.waits.get(key)
        if waits is None:
            return
        if waits.kind is _DEADLINE:
            self._passed[key] = None
        else:
            if waits.kind is not WaitKind.CALL:  # Its call, which has not begun, still shows whether the server is available.
                self._dependencies.put_back(key, now)
            self._arm(key, waits)

    def note_pauses(self, partition: Partition, pauses: Pauses) -> None:
        """Take over the pauses of a partition, and set all its deadlines again: during a pause they rest.

        The next `dues` checks their ends against this worker's clock.
        """
        self._pauses[partition] = pauses
        self._backlog.drop(partition)
        self._passed = {key: None for key in self._passed if key.partition != partition}
        for key in [key for key, waits in self.waits.items() if waits.kind is _DEADLINE and key.partition == partition]:
            self._arm(key, self.waits[key])

    def is_active(self, key: UnitKey) -> bool:
        return key in self._active

    def activate(self, key: UnitKey) -> None:
        """Note that the unit has an actor, and that its stash is in memory. No effect if it has one already."""
        if key not in self._active:
            self._active[key] = 0
            self._stashed_bytes += self._size(key)

    def deactivate(self, key: UnitKey) -> None:
        """Note that the unit's actor is stopping. The registry still knows how the unit waits."""
        if key in self._active:
            self._data_bytes -= self._active.pop(key)
            self._stashed_bytes -= self._size(key)
            self._idle.pop(key, None)
            self._stored.pop(key, None)

    def note(self, turn: Turn, now: Instant) -> None:
        """Take over the turn of an active unit.

        A turn that changed nothing does not prolong the idle time-out: the actor must stop before the stored unit expires.
        If the storage keeps units, the actor of a released unit stops at the next chance. Otherwise the actor stays until
        it is idle, and the position waits for it.
        """
        if now > self._latest:
            self._latest = now
        key, waits = turn.key, turn.waits
        known = self.waits.get(key)
        if self._stored:
            self._stored.pop(key, None)
        self._data_bytes += turn.data_bytes - self._active.pop(key)
        self._active[key] = turn.data_bytes
        if waits is None and known is None:
            self._note_idle(key, turn, now)
            return
        if waits is not None:
            waits = self._by_this_clock(key, waits, now)
        self._stashed_bytes += (waits.stashed_bytes if waits else 0) - (known.stashed_bytes if known else 0)
        if waits is not None and waits.kind is _DEADLINE and (known is None or known.kind is _DEADLINE):
            # Neither a server nor an unfinished turn knows the unit.
            self.stashed += waits.stashed - (known.stashed if known else 0)
            self.waits[key] = waits
            self._idle.pop(key, None)
            self._set_timer(key, waits)
            return
        self._note_answered(turn, known, now)
        self._note_ordered(key, turn.unit.waiting_order)
        self._remember(key, waits)
        self._note_try(key, known, waits, now)
        if waits is None:
            self._unfinished.note(key, None, has_output=False)
            self._timers.disarm(key)
            self._note_idle(key, turn, now)
        else:
            self._idle.pop(key, None)
            self._arm(key, waits, has_output=turn.output_bytes > 0)
            if self._settings.can_reload and waits.kind is WaitKind.DEPENDENCY and self._is_heavy(waits):
                self._over.append(key)

    def _note_ordered(self, key: UnitKey, order: Ordered | None) -> None:
        if order is not None and order.unread_to is not None:
            self._ordered[key] = order.unread_to
        elif self._ordered:
            self._ordered.pop(key, None)

    def _note_answered(self, turn: Turn, known: Waits | None, now: Instant) -> None:
        """Note that a server is available if the handler has answered, although it is called for the next envelope."""
        is_called_again = known is not None and turn.waits is not None and known.kind is turn.waits.kind is WaitKind.CALL
        server = self._dependencies.find_tried(turn.key) if turn.handled and is_called_again else None
        if server is not None:
            self._dependencies.note(turn.key, None, now)
            self._dependencies.remember(server, None)

    def _note_try(self, key: UnitKey, known: Waits | None, waits: Waits | None, now: Instant) -> None:
        """Note what a turn, before which the unit waited as `known`, shows of the server that the unit tries."""
        if known is not None and waits is not None and _dependency(waits) is not None and waits.wakes_at == known.wakes_at:
            self._dependencies.put_back(key, now)  # The turn ended before the handler could call the server.
        elif _is_called(known) and _is_held(waits):
            self._dependencies.put_back(key, now)  # The call was cancelled.
        elif not (_is_called(waits) and self._dependencies.find_tried(key)):  # The answer shows whether the server is available.
            self._dependencies.note(key, _dependency(waits), now)

    def _note_idle(self, key: UnitKey, turn: Turn, now: Instant) -> None:
        """Take over a turn after which nothing waits."""
        if turn.is_last:
            self._stored[key] = None
        elif turn.is_changed or key not in self._idle:
            self._idle.pop(key, None)
            self._idle[key] = now
        if turn.releases and self._settings.can_reload:
            self._over.append(key)

    def dues(
        self,
        now: Instant,
        read_to: Mapping[Partition, int],
        ends: Mapping[Partition, int],
        limit: int = AT_ONCE,
        spoken_to: Container[UnitKey] = (),
        to_call: Iterable[UnitKey] = (),
    ) -> Dues:
        """Return the units that are due at `now`.

        `read_to` is how far each partition was read, `ends` where its log ended when that read began. About `limit` units are
        returned; the others are due again at once. Units that are `spoken_to` have envelopes in this poll: their actors do not
        stop after a release, because they would be loaded again at once. `to_call` are those whose handler can be called.
        """
        self._follow_clock(now)
        wakes = dict.fromkeys(self._unfinished.first(limit, self._settings.budget_bytes), Wake.REMAINDER)
        over, self._over = self._over[:limit], self._over[limit:]
        stops = dict.fromkeys(key for key in over if key not in spoken_to)
        idle = list(islice(self._idle_since(now - self._settings.idle_timeout_ms), limit))
        stops |= dict.fromkeys(self._passivated(idle, wakes))
        due = list(islice(self._timers.due(now), limit))
        for key in due:
            due_wait = self.waits[key]
            if due_wait.kind in _WAKES:
                wakes[key] = _WAKES[due_wait.kind]
            elif due_wait.kind is WaitKind.DEPENDENCY:
                self._dependencies.queue(key, due_wait.waits_for)
            else:
                self._hold(key, now, read_to, ends)
        caught_up = list(islice(self._backlog.caught_up(read_to), limit))
        passed, self._passed = self._passed, {}
        for key in (*passed, *caught_up):
            waits = self.waits.get(key)
            if waits is None or waits.kind is not _DEADLINE:
                continue
            if self._deadline(key, waits) <= now:
                wakes[key] = Wake.DEADLINE
            else:  # The unit began to wait again, or the clock was set back, while the backlog was read.
                self._arm(key, waits)
        wakes |= dict.fromkeys(self._dependencies.take(now, limit), Wake.RETRY)
        executed = list(islice(self._executable(read_to), limit)) if self._ordered else ()
        wakes |= dict.fromkeys(executed, Wake.ORDER)
        for key in to_call:
            wakes.setdefault(key, Wake.CALL)
        self._is_behind = max(len(idle), len(due), len(caught_up), len(executed)) >= limit or bool(self._over)
        for key in (*self._heaviest(), *self._longest_silent()):
            if self._settings.can_reload:
                stops[key] = None
            else:
                wakes.setdefault(key, Wake.BOUND)
        self._postpone_beyond_memory(wakes, now)
        return Dues(wakes, tuple(key for key in stops if key in self._active and key not in wakes))

    def _executable(self, read_to: Mapping[Partition, int]) -> Iterator[UnitKey]:
        """Yield the units whose order has waited for records that are read now; again and again until it is executed."""
        for key, end in self._ordered.items():
            waits = self.waits.get(key)
            if waits is not None and waits.kind is WaitKind.ORDERED and end <= read_to.get(key.partition, -1):
                yield key

    def _passivated(self, idle: Iterable[UnitKey], wakes: dict[UnitKey, Wake]) -> Iterable[UnitKey]:
        """Return the idle units that stop now; without `can_reload` they are woken first, to say what is to be stored."""
        if self._settings.can_reload:
            return idle
        for key in idle:
            wakes[key] = Wake.PASSIVATE
            del self._idle[key]
        return self._stored

    def _idle_since(self, at: Instant) -> Iterator[UnitKey]:
        """Yield the units in which nothing waits and that did not change after `at`, the longest idle first."""
        for key, changed_at in self._idle.items():
            if changed_at > at:
                return
            yield key

    def _hold(self, key: UnitKey, now: Instant, read_to: Mapping[Partition, int], ends: Mapping[Partition, int]) -> None:
        """Let a deadline wait until its backlog was read, or until it is known where the log of its partition ends."""
        if key.partition in read_to and key.partition not in ends:
            self._timers.arm(key, now + _END_UNKNOWN_MS)
        else:
            self._backlog.hold(key, ends.get(key.partition, 0))

    def _follow_clock(self, now: Instant) -> None:
        """Correct instants that lie too far in the future.

        This worker's clock may have been ahead and set back, or a unit may come from a worker whose clock is ahead.
        """
        for partition, pauses in list(self._pauses.items()):
            if (possible := pauses_by_this_clock(pauses, now)) != pauses:
                self.note_pauses(partition, possible)
        is_set_back, self._latest = now < self._latest - SKEW_MS, now
        looked_at, self._undated = list(self.waits) if is_set_back else self._undated, []
        for key in looked_at:
            waits = self.waits.get(key)
            if waits is not None and (mended := self._by_this_clock(key, waits, now)) is not waits:
                self._remember(key, mended)
                self._arm(key, mended)
        if is_set_back:
            self._idle = dict.fromkeys(self._idle, now)

    def _by_this_clock(self, key: UnitKey, waits: Waits, now: Instant) -> Waits:
        """Return `waits` with possible instants.

        A wait that began in the future begins now, or when that was first noticed. A retry is due within the longest pause.
        A deadline further away than any can be is due now: its unit then sets it again.
        """
        since, wakes_at = waits.since, waits.wakes_at
        if since <= now and waits.kind is _DEADLINE and wakes_at <= now + self._settings.longest_deadline_ms:
            return waits
        latest = now + self._settings.longest_pause_ms
        if since > now + SKEW_MS:
            known = self._ahead.get(key)
            since = known[1] if known is not None and known[0] == waits.since else now
            self._ahead[key] = waits.since, since
        if waits.kind is _DEADLINE:
            wakes_at += since - waits.since
            wakes_at = now if wakes_at > now + self._settings.longest_deadline_ms + SKEW_MS else wakes_at
        elif waits.kind in (WaitKind.HELD, WaitKind.ORDERED):
            wakes_at = min(wakes_at, now + LONGEST_HOLD_MS)
        elif wakes_at > latest + SKEW_MS:
            wakes_at = latest
        return waits if (since, wakes_at) == (waits.since, waits.wakes_at) else replace(waits, since=since, wakes_at=wakes_at)

    def _postpone_beyond_memory(self, wakes: dict[UnitKey, Wake], now: Instant) -> None:
        """Postpone units whose load would exceed the memory bound. They are due again at once."""
        loaded, limit = 0, self._settings.stash_bytes * _LOADED_PART
        for key in [key for key, wake in wakes.items() if wake is not Wake.REMAINDER and key not in self._active]:
            if loaded >= limit:
                del wakes[key]
                self.postpone(key, now)
            loaded += self._size(key)

    def drop(self, partition: Partition) -> list[UnitKey]:
        """Forget a partition, and return its units that had an actor."""
        gone = [key for key in self._active if key.partition == partition]
        for key in gone:
            self.deactivate(key)
        for key in [key for key in self.waits if key.partition == partition]:
            self._remember(key, None)
            self._timers.disarm(key)
        self._ordered = {key: end for key, end in self._ordered.items() if key.partition != partition}
        self._dependencies.drop(partition)
        self._pauses.pop(partition, None)
        self._backlog.drop(partition)
        self._unfinished.drop(partition)
        self._over = [key for key in self._over if key.partition != partition]
        self._passed = {key: None for key in self._passed if key.partition != partition}
        return gone

    def longest(self, count: int) -> Iterable[tuple[UnitKey, Waits]]:
        """Return the `count` units that have waited longest, among the first 100 × `count` that began to wait."""
        first = [entry for entry, _ in zip(self.waits.items(), range(100 * count), strict=False)]
        return sorted(first, key=lambda entry: entry[1].since)[:count]

    def _arm(self, key: UnitKey, waits: Waits, *, has_output: bool = False) -> None:
        """Set the timer of a waiting unit.

        A unit with a remainder gets no timer: it waits in the queue of remainders. Nor does one whose handler is called. A
        deadline of a paused partition gets none. A unit whose order waits for what is not known here (after a takeover) is due at
        once, and its turn says so.
        """
        self._unfinished.note(key, waits, has_output=has_output)
        self._set_timer(key, waits)

    def _set_timer(self, key: UnitKey, waits: Waits) -> None:
        pauses = self._pauses.get(key.partition) if waits.kind is _DEADLINE else None
        if (pauses and is_paused(pauses)) or waits.kind in _WITHOUT_TIMER:
            self._timers.disarm(key)
        elif waits.kind is WaitKind.ORDERED and key not in self._ordered:
            self._timers.arm(key, 0)
        else:
            self._timers.arm(key, waits.wakes_at + paused_ms(pauses, waits.since) if pauses else waits.wakes_at)

    def _deadline(self, key: UnitKey, waits: Waits) -> Instant:
        pauses = self._pauses.get(key.partition)
        return waits.wakes_at + paused_ms(pauses, waits.since) if pauses else waits.wakes_at

    def _remember(self, key: UnitKey, waits: Waits | None) -> None:
        """Take over how a unit waits."""
        known = self.waits.get(key)
        self.stashed += (waits.stashed if waits else 0) - (known.stashed if known else 0)
        self.held += _is_held(waits) - _is_held(known)
        self._dependencies.remember(self._server_of(key, known), self._server_of(key, waits))
        if waits is not None and waits.kind is WaitKind.CALL and self._is_heavy(waits):
            self._crowded[key] = None
        elif self._crowded:
            self._crowded.pop(key, None)
        if waits is not None:
            self.waits[key] = waits
        elif known is not None:
            del self.waits[key]
            self._ahead.pop(key, None)

    def _server_of(self, key: UnitKey, waits: Waits | None) -> str | None:
        """The server that a unit waits for, or tries by a call that has no answer yet; None for no server."""
        if _is_called(waits):
            return self._dependencies.find_tried(key)
        return _dependency(waits)

    def _is_heavy(self, waits: Waits) -> bool:
        return waits.stashed > self._settings.unit_stash or waits.stashed_bytes > self._settings.unit_bytes

    def _size(self, key: UnitKey) -> int:
        waits = self.waits.get(key)
        return waits.stashed_bytes if waits else 0

    def _heaviest(self) -> Iterator[UnitKey]:
        """Yield the units that began to wait first, as many as must leave memory if the stashes exceed their bound."""
        excess = self._stashed_bytes - self._settings.stash_bytes * _EVICTED_PART
        if self._stashed_bytes <= self._settings.stash_bytes:
            return
        for key, waits in self.waits.items():
            if excess <= 0:
                return
            if key in self._active:
                excess -= waits.stashed_bytes
                yield key

    def _longest_silent(self) -> Iterator[UnitKey]:
        """Yield the units with the oldest turns, as many as must leave memory if stashes and data exceed the bound.

        Yields none if the stashes alone exceed the bound; `_heaviest` handles that.
        """
        used, limit = self._stashed_bytes + self._data_bytes, self._settings.stash_bytes
        if not self._settings.can_reload or self._stashed_bytes > limit or used <= limit:
            return
        excess = used - limit * _EVICTED_PART
        for key, data_bytes in self._active.items():
            if excess <= 0:
                return
            excess -= data_bytes + self._size(key)
            yield key


def _is_held(waits: Waits | None) -> bool:
    return waits is not None and waits.kind is WaitKind.HELD


def _is_called(waits: Waits | None) -> bool:
    return waits is not None and waits.kind is WaitKind.CALL


def _dependency(waits: Waits | None) -> str | None:
    """The server that a unit waits for; None if it waits for no server."""
    return waits.waits_for if waits is not None and waits.kind is WaitKind.DEPENDENCY else None
