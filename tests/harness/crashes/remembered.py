"""What a service must still know of its units, computed from outside: from the time that passed and from when records came.

Retention counts only the time in which a partition was caught up. That time cannot be seen from outside, but it has an upper
bound. Of a span that passes at once, at most ten seconds count. While a producer's transaction is open at the end of a log, at
most ten seconds count in all. If, by this bound, the last change of a unit is younger than the retention, the service must know
the unit, whichever worker was dead or away, and whatever the clocks showed.
"""

from collections import Counter, defaultdict
from collections.abc import Sequence

import msgspec
from harness.service_under_test import Told

_STEP_MS = 10_000
_FOR_EVER_MS = 1 << 60


class Remembered:
    """A unit's epoch ends where the unit may have been forgotten before its next envelope came. Within an epoch the unit is
    forgotten at most once, and not after the first new envelope.

    It *may* have been forgotten: if it was not, an envelope of an earlier epoch is a repetition, and prolongs nothing.

    `slack_ms` is how much earlier or later than it came a record may have been read, in all, by clocks that move while workers
    work.
    """

    def __init__(self, retention_ms: int = _FOR_EVER_MS, slack_ms: int = 0) -> None:
        self._retention_ms = retention_ms - slack_ms
        self._hang_ms = _STEP_MS + slack_ms
        self._passed_ms = 0
        self._hung_ms: defaultdict[int, int] = defaultdict(int)
        self._left_ms: dict[int, int] = {}
        self._units: dict[str, _Unit] = {}
        self._epochs: defaultdict[str, set[int]] = defaultdict(set)

    # What happens

    def passed(self, milliseconds: int) -> None:
        """Note that time passed at once, or that a clock was set forward."""
        counted = min(milliseconds, _STEP_MS)
        self._passed_ms += counted
        for partition, left in self._left_ms.items():
            self._hung_ms[partition] += max(0, counted - left)
            self._left_ms[partition] = max(0, left - counted)

    def hangs(self, partition: int) -> None:
        """Note that a producer's transaction is open at the end of this log."""
        self._left_ms.setdefault(partition, self._hang_ms)

    def is_decided(self, partition: int) -> None:
        """Note that this transaction has ended."""
        self._left_ms.pop(partition, None)

    def came(self, partition: int, value: bytes | None) -> None:
        """Note that a record was appended. A record that is no envelope belongs to no unit and changes nothing."""
        names = names_in(value)
        if names is None:
            return
        unit, identity = names
        now = self._passed_ms - self._hung_ms[partition]
        known = self._units.setdefault(unit, _Unit(now))
        if now - known.changed_at >= self._retention_ms:
            known.epoch += 1
        if identity not in known.identities:
            known.identities.add(identity)
            known.changed_at = now
        self._epochs[identity].add(known.epoch)

    # What follows from it

    @property
    def forgettable(self) -> frozenset[str]:
        """Return the units that may have been forgotten between two envelopes."""
        return frozenset(name for name, unit in self._units.items() if unit.epoch)

    def find_forgotten(self, notifications: Sequence[Told]) -> str | None:
        """Find a repetition though the unit had to be known. If it is marked possible-duplicate, any number is allowed."""
        times: Counter[str] = Counter()
        for each in notifications:
            if each.is_possible_duplicate:
                times[each.identity] += self._times(each.identity) == 1
            elif times[each.identity] >= self._times(each.identity):
                return f"told again though it had to be known: {each}"
            else:
                times[each.identity] += 1
        return None

    def find_missing_data(self, notifications: Sequence[Told]) -> str | None:
        """Find a notification without payment data that its unit had before and still had to know."""
        last: dict[str, Told] = {}
        for each in (each for each in notifications if not each.is_possible_duplicate):
            before = last.get(each.unit, each)
            if not set(before.data) <= set(each.data) and not self._may_forget_between(before.identity, each.identity):
                return f"payment data is missing: {each} after {before}"
            last[each.unit] = each
        return None

    def _times(self, identity: str) -> int:
        """Return how often this envelope may have been new."""
        return max(1, len(self._epochs.get(identity, ())))

    def _may_forget_between(self, earlier: str, later: str) -> bool:
        return max(self._epochs[later]) > min(self._epochs[earlier])


class _Unit:
    """A unit at its last envelope. `identities` are all that came, `changed_at` is when the last of them was new."""

    def __init__(self, now: int) -> None:
        self.changed_at = now
        self.epoch = 0
        self.identities: set[str] = set()


def names_in(value: bytes | None) -> tuple[str, str] | None:
    """Return the unit and the id of an envelope; None if the record is no envelope."""
    try:
        envelope = msgspec.json.decode(value or b"")
        return envelope["processingContext"]["unitOfWorkId"], envelope["processObjects"][0]["uniqueId"]
    except (msgspec.DecodeError, KeyError, TypeError):
        return None
