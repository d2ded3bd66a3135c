"""The effects of a turn, collected while it runs."""

from collections import defaultdict, deque

from domain.clock import Instant
from domain.dead_letter import DeadLetter, DeadLetterReason
from domain.order import OrderOutcome
from domain.record import Record
from resequencer.handlers.port import Handled, Marks
from resequencer.stash import Stashed
from resequencer.unit import Output, Release, Tally, Undecodable, Unit


class Effects:
    """The output in order, the stash entries added and removed, the releases and the counts of one turn."""

    def __init__(self, before: Unit, now: Instant) -> None:
        self._before = before
        self._now = now
        self._arrived: set[int] = set()
        self._counts: defaultdict[str, int] = defaultdict(int)
        self.output: list[Output] = []
        self.releases: list[Release] = []
        self.added: dict[int, Stashed] = {}
        self.removed: list[int] = []
        self.waited_ms: list[int] = []
        self.written_at: list[Instant] = []
        self.let_out = 0

    @property
    def tally(self) -> Tally:
        return Tally(len(self._arrived), **self._counts)

    @property
    def has_counted(self) -> bool:
        """Whether anything was handled or stashed."""
        return "handled" in self._counts or "stashed" in self._counts

    def arrive(self, offset: int) -> None:
        """Note a record that arrived in this turn. The storage does not have it yet; it has every other stashed record.

        Records are identified by offset and not by envelope id, because the id of a dead letter may come again.
        """
        self._arrived.add(offset)

    def count(self, what: str) -> None:
        """Add one to a field of `Tally`. Arrivals are counted separately."""
        self._counts[what] += 1

    def stash(self, entry: Stashed) -> None:
        """Note an entry that was stashed. It is stored if it arrived in this turn; otherwise the storage has it already."""
        offset = entry.envelope.offset
        if offset in self._arrived:
            self.added[offset] = entry

    def notify(self, entry: Stashed, handled: Handled, marks: Marks) -> None:
        """Add the notifications of a handled entry, behind all of them its facts, and note that the entry no longer waits."""
        self.output += handled.notifications
        self.let_out += sum([each.size for each in handled.notifications])
        if handled.facts:
            self.output += handled.facts
            self.let_out += sum([each.size for each in handled.facts])
        self._counts["handled"] += 1
        written_at = entry.envelope.record.written_at
        if written_at is not None:
            self.written_at.append(written_at)
        if handled.unmatched:
            self._counts["unmatched"] += handled.unmatched
        if handled.suppressed:
            self._counts["suppressed"] += handled.suppressed
        if marks.late:
            self._counts["late"] += 1
        if marks.incomplete is not None:
            self._counts["incomplete"] += 1
        self.leave(entry)

    def dead_letter(self, record: Record, reason: DeadLetterReason, error: str) -> None:
        """Add a dead letter to the output."""
        letter = DeadLetter(record, reason, error, self._now)
        self.output.append(letter)
        self.let_out += letter.size

    def report(self, outcome: OrderOutcome) -> None:
        """Add the outcome of an order to the output. It is small, and counts for no share."""
        self.output.append(outcome)

    def dead_letter_entry(self, entry: Stashed, reason: DeadLetterReason, error: str) -> None:
        """Add an entry as a dead letter whose handling failed for good, and note that it no longer waits."""
        self.dead_letter(entry.envelope.record, reason, error)
        self.leave(entry)

    def dead_letter_undecodable(self, share: int) -> tuple[Undecodable, ...]:
        """Add dead letters for stashed records that today's configuration refuses. Return the records that exceed the share."""
        if not self._before.undecodable:
            return ()
        left = deque(self._before.undecodable)
        while left and self.let_out < share:
            each = left.popleft()
            self.dead_letter(each.record, each.reason, each.error)
            self.removed.append(each.record.origin.offset)
        return tuple(left)

    def has_arrived(self, entry: Stashed) -> bool:
        """Whether the entry arrived in this turn."""
        return entry.envelope.offset in self._arrived

    def leave(self, entry: Stashed) -> None:
        """Note that an entry no longer waits, if it did wait."""
        offset, waited_ms = entry.envelope.offset, self._now - entry.stashed_at
        if waited_ms > self._counts["longest_wait_ms"]:
            self._counts["longest_wait_ms"] = waited_ms
        if self.added.pop(offset, None) is None and offset not in self._arrived:
            self.removed.append(offset)
            self.waited_ms.append(waited_ms)
