"""Which units a guardian knows: who has an actor, who waits, who is to be woken or stopped. Pure bookkeeping."""

from collections import defaultdict
from collections.abc import Container, Iterable, Iterator, Mapping
from itertools import islice

import msgspec
from msgspec.structs import replace

from domain.clock import Instant
from domain.record import Partition
from guardian.backlog import Backlog
from guardian.dependencies import Dependencies
from guardian.remainders import Remainders
from guardian.timers import Timers
from resequencer.messages import TurnTaken, UnitKey
from resequencer.unit import Wake
from storage.port import WaitKind, Waits

_EVICTED_SHARE = 0.9
"""At its bound a worker's stash is brought down to this share of it, so that the next envelope does not meet it again."""


_LOADED_SHARE = 0.125
"""Of that bound so much is loaded at once for those whose time has come, or one unit."""

_SKEW_MS = 1_000
"""By so much the clocks of two workers may differ, and one may be set back, without any consequence."""

AT_ONCE = 1_000
"""Where nothing else is said, so many units are woken or stopped at once: a million idle ones must not stop the intake."""


class UnitRegistrySettings(msgspec.Struct, frozen=True):
    """`stash_bytes` bounds what the units in memory hold of records and payment data; `can_reload` says whether the storage keeps
    what leaves memory.

    A unit that waits for a server and stashes more than `unit_stash` envelopes or `unit_bytes` leaves memory when it is not
    spoken to. `share_bytes` is about what one turn may let out; a cycle lets out two to four times as much. No pause before an
    attempt is longer than `longest_pause_ms`.
    """

    idle_timeout_ms: int = 30_000
    stash_bytes: int = 512 * 1024 * 1024
    can_reload: bool = True
    unit_stash: int = 1_000
    unit_bytes: int = 64 * 1024 * 1024
    share_bytes: int = 20 * 1024 * 1024
    longest_pause_ms: int = 30_000


class Dues(msgspec.Struct, frozen=True):
    """Who is to be woken for what, and whose actor is to stop."""

    wakes: Mapping[UnitKey, Wake]
    stops: tuple[UnitKey, ...]


class UnitRegistry:
    """Keeps time and memory for a guardian.

    `waits` is in the order in which the units began to wait, `stashed` the number of envelopes in their stashes.
    """

    def __init__(self, settings: UnitRegistrySettings) -> None:
        self._settings = settings
        self._timers: Timers[UnitKey] = Timers()
        self._backlog = Backlog()
        self._dependencies = Dependencies()
        self._remainders = Remainders()
        # With the bytes of their payment data; those come last that were heard of last.
        self._active: dict[UnitKey, int] = {}
        self._data_bytes = 0
        self._over: list[UnitKey] = []
        self._passed: dict[UnitKey, None] = {}
        self._stashed_bytes = 0
        self._is_behind = False
        self._latest: Instant = 0
        self._undated: list[UnitKey] = []
        # Since when it waits by a clock that was ahead, and since when it was first seen to.
        self._anew: dict[UnitKey, tuple[Instant, Instant]] = {}
        self.waits: dict[UnitKey, Waits] = {}
        self.stashed = 0

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
        """Of the stashed records in memory."""
        return self._stashed_bytes

    @property
    def backlogged(self) -> int:
        return len(self._backlog)

    @property
    def next_wake_at(self) -> Instant | None:
        """When to ask again at the latest; 0 if not all that are due were told yet."""
        known = [each for each in (self._timers.next_at(), self._dependencies.next_at) if each is not None]
        return 0 if self._is_behind or self._passed or self._remainders else min(known, default=None)

    @property
    def unavailable(self) -> Mapping[str, int]:
        """The servers that handlers cannot reach, with how many units wait for each."""
        return self._dependencies.waiting

    @property
    def is_held_up(self) -> bool:
        """More was left over than a cycle lets out: what is read now would only be added to it."""
        return self._remainders.stashed_bytes > 2 * self._settings.share_bytes

    def has_remainder(self, key: UnitKey) -> bool:
        """Its last turn left something over."""
        return key in self._remainders

    def arm(self, key: UnitKey, waits: Waits) -> None:
        """A unit that waits in storage, without an actor. Whether its clock was right is looked at with the next dues."""
        self._undated.append(key)
        self._remember(key, waits)
        self._arm(key, waits)

    def put_off(self, key: UnitKey, now: Instant) -> None:
        """It was to be woken and was not: it is due again at once, in its place. A deadline waits for its backlog only once."""
        waits = self.waits.get(key)
        if waits is None:
            return
        if waits.kind is WaitKind.DEADLINE:
            self._passed[key] = None
        else:
            self._dependencies.put_back(key, now)
            self._arm(key, waits)

    def activate(self, key: UnitKey) -> None:
        """It has an actor now, and its stash is in memory."""
        self._active[key] = 0
        self._stashed_bytes += self._size(key)

    def deactivate(self, key: UnitKey) -> None:
        """Its actor is told to stop; what waits is still known."""
        if key in self._active:
            self._data_bytes -= self._active.pop(key)
            self._stashed_bytes -= self._size(key)

    def note(self, decided: TurnTaken, now: Instant) -> None:
        """An active unit took a turn.

        A turn that changed nothing does not keep its actor alive: it must have stopped before its state expires in storage. One
        that was released is over; but where only the source remembers it, its position waits for it until it is idle.
        """
        self._latest = max(self._latest, now)
        key, decision = decided.key, decided.decision
        waits = None if decision.waits is None else self._by_this_clock(key, decision.waits, now)
        known = self._remember(key, waits)
        self._stashed_bytes += (waits.stashed_bytes if waits else 0) - (known.stashed_bytes if known else 0)
        self._data_bytes += decision.data_bytes - self._active.pop(key)
        self._active[key] = decision.data_bytes
        if known is not None and waits is not None and _dependency(waits) is not None and waits.wakes_at == known.wakes_at:
            self._dependencies.put_back(key, now)  # Its turn was cut before it could call the server.
        else:
            self._dependencies.note(key, _dependency(waits), now)
        if waits is None:
            self._remainders.note(key, None, has_let_out=False)
            if decision.change is not None or not self._timers.is_armed(key):
                self._timers.arm(key, now + self._settings.idle_timeout_ms)
        else:
            self._arm(key, waits, has_let_out=decision.let_out > 0)
        if self._settings.can_reload and (decision.is_over or self._is_heavy(waits)):
            self._over.append(key)

    def dues(
        self,
        now: Instant,
        read_to: Mapping[Partition, int],
        ends: Mapping[Partition, int],
        limit: int = AT_ONCE,
        spoken_to: Container[UnitKey] = (),
    ) -> Dues:
        """Who is due at `now`, given how far each partition was read and where its log ended when that reading began.

        About `limit` at once; the rest is due at once again. Whoever is `spoken_to` in this poll would be loaded again at once:
        what is over stays.
        """
        self._follow_clock(now)
        wakes = dict.fromkeys(self._remainders.first(limit, self._settings.share_bytes), Wake.REMAINDER)
        over, self._over = self._over[:limit], self._over[limit:]
        stops = dict.fromkeys(key for key in over if key not in spoken_to)
        due = list(islice(self._timers.due(now), limit))
        for key in due:
            waits = self.waits.get(key)
            if waits is None:
                stops[key] = None
            elif waits.kind is WaitKind.RETRY:
                wakes[key] = Wake.RETRY
            elif waits.kind is WaitKind.DEPENDENCY:
                self._dependencies.queue(key, waits.waits_for)
            else:
                self._backlog.hold(key, ends.get(key.partition, 0))
        caught_up = list(islice(self._backlog.caught_up(read_to), limit))
        passed, self._passed = self._passed, {}
        for key in (*passed, *caught_up):
            waits = self.waits.get(key)
            if waits is None or waits.kind is not WaitKind.DEADLINE:
                continue
            if waits.wakes_at <= now:
                wakes[key] = Wake.DEADLINE
            else:  # It has begun to wait anew, or the clock was set back while its backlog was read.
                self._timers.arm(key, waits.wakes_at)
        wakes |= dict.fromkeys(self._dependencies.take(now, limit), Wake.RETRY)
        self._is_behind = max(len(due), len(caught_up)) >= limit or bool(self._over)
        for key in (*self._heaviest(), *self._longest_silent()):
            if self._settings.can_reload:
                stops[key] = None
            else:
                wakes.setdefault(key, Wake.BOUND)
        self._put_off_beyond_memory(wakes, now)
        return Dues(wakes, tuple(key for key in stops if key in self._active and key not in wakes))

    def _follow_clock(self, now: Instant) -> None:
        """By a clock that was ahead a unit waits as much longer, and so does one of another worker's that was taken over."""
        is_set_back, self._latest = now < self._latest - _SKEW_MS, now
        looked_at, self._undated = list(self.waits) if is_set_back else self._undated, []
        for key in looked_at:
            waits = self.waits.get(key)
            if waits is not None and (mended := self._by_this_clock(key, waits, now)) is not waits:
                self._remember(key, mended)
                self._arm(key, mended)
        if is_set_back:
            for key in [each for each in self._active if each not in self.waits]:
                self._timers.arm(key, now + self._settings.idle_timeout_ms)

    def _by_this_clock(self, key: UnitKey, waits: Waits, now: Instant) -> Waits:
        """The same where its instants are possible. Else it begins to wait now, or when that was first seen."""
        since, wakes_at, latest = waits.since, waits.wakes_at, now + self._settings.longest_pause_ms
        if since > now + _SKEW_MS:
            known = self._anew.get(key)
            since = known[1] if known is not None and known[0] == waits.since else now
            self._anew[key] = waits.since, since
        if waits.kind is WaitKind.DEADLINE:
            wakes_at += since - waits.since
        elif wakes_at > latest + _SKEW_MS:
            wakes_at = latest
        return waits if (since, wakes_at) == (waits.since, waits.wakes_at) else replace(waits, since=since, wakes_at=wakes_at)

    def _put_off_beyond_memory(self, wakes: dict[UnitKey, Wake], now: Instant) -> None:
        """Those that are to be loaded hold no more together than fits; the others are due at once again."""
        loaded, most = 0, self._settings.stash_bytes * _LOADED_SHARE
        for key in [key for key, wake in wakes.items() if wake is not Wake.REMAINDER and key not in self._active]:
            if loaded >= most:
                del wakes[key]
                self.put_off(key, now)
            loaded += self._size(key)

    def drop(self, partition: Partition) -> list[UnitKey]:
        """Forget a partition; the units that had an actor."""
        gone = [key for key in self._active if key.partition == partition]
        self._dependencies.drop(partition)
        for key in gone:
            self.deactivate(key)
            self._timers.disarm(key)
        for key in [key for key in self.waits if key.partition == partition]:
            self._remember(key, None)
            self._timers.disarm(key)
        self._backlog.drop(partition)
        self._remainders.drop(partition)
        self._over = [key for key in self._over if key.partition != partition]
        self._passed = {key: None for key in self._passed if key.partition != partition}
        return gone

    def longest(self, count: int) -> Iterable[tuple[UnitKey, Waits]]:
        """Those that have waited longest, from the first that began to wait; costs by `count`."""
        first = [entry for entry, _ in zip(self.waits.items(), range(100 * count), strict=False)]
        return sorted(first, key=lambda entry: entry[1].since)[:count]

    def _arm(self, key: UnitKey, waits: Waits, *, has_let_out: bool = False) -> None:
        """What was left over is due whatever the clock says; it waits in its line."""
        self._remainders.note(key, waits, has_let_out=has_let_out)
        if waits.kind is WaitKind.REMAINDER:
            self._timers.disarm(key)
        else:
            self._timers.arm(key, waits.wakes_at)

    def _remember(self, key: UnitKey, waits: Waits | None) -> Waits | None:
        """What was known before."""
        known = self.waits.get(key)
        self.stashed += (waits.stashed if waits else 0) - (known.stashed if known else 0)
        self._dependencies.remember(_dependency(known), _dependency(waits))
        if waits is not None:
            self.waits[key] = waits
        elif known is not None:
            del self.waits[key]
            self._anew.pop(key, None)
        return known

    def _is_heavy(self, waits: Waits | None) -> bool:
        if waits is None or waits.kind is not WaitKind.DEPENDENCY:
            return False
        return waits.stashed > self._settings.unit_stash or waits.stashed_bytes > self._settings.unit_bytes

    def _size(self, key: UnitKey) -> int:
        waits = self.waits.get(key)
        return waits.stashed_bytes if waits else 0

    def _heaviest(self) -> Iterator[UnitKey]:
        """While the stashes in memory are beyond their bound: the units that began to wait first."""
        excess = self._stashed_bytes - self._settings.stash_bytes * _EVICTED_SHARE
        if self._stashed_bytes <= self._settings.stash_bytes:
            return
        for key, waits in self.waits.items():
            if excess <= 0:
                return
            if key in self._active:
                excess -= waits.stashed_bytes
                yield key

    def _longest_silent(self) -> Iterator[UnitKey]:
        """While payment data takes what is held beyond the bound: the units that nothing was heard of for longest."""
        held, most = self._stashed_bytes + self._data_bytes, self._settings.stash_bytes
        if not self._settings.can_reload or self._stashed_bytes > most or held <= most:
            return
        excess = held - most * _EVICTED_SHARE
        for key, data_bytes in self._active.items():
            if excess <= 0:
                return
            excess -= data_bytes + self._size(key)
            yield key


def _dependency(waits: Waits | None) -> str | None:
    """The server that a unit waits for, if it waits for one."""
    return waits.waits_for if waits is not None and waits.kind is WaitKind.DEPENDENCY else None
