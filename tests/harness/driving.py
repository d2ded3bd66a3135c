"""Builders of envelopes and units, and a unit that a test drives by hand."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import msgspec

from notification_service.events.format import DecodingSettings
from notification_service.payments.decoding import EnvelopeDecoder
from notification_service.payments.envelope import DataEnvelope
from notification_service.payments.payment_data import LATEST_OBJECTS, PaymentData
from notification_service.payments.strategies import StrategySettings, make_strategy
from resequencer.batch import WITHOUT_END
from resequencer.call import Answer, Call
from resequencer.clock import Instant
from resequencer.dead_letter import DeadLetter
from resequencer.handler import Handled, Marks, Profiles
from resequencer.notification import Notification
from resequencer.order import Order, OrderKind, OrderOutcome
from resequencer.record import Origin, Partition, Record
from resequencer.settings import ResequencerSettings
from resequencer.storage_port import Snapshot, StashEntry, WaitKind
from resequencer.strategies.port import Strategy
from resequencer.turn.decide import take_turn
from resequencer.turn.retry import Chance
from resequencer.turn.turn import Output, Turn, TurnContext
from resequencer.unit import Ordered, Wake
from resequencer.unit_codec import UnitCodec

PARTITION = Partition("IPF_PROCESSING_DATA", 0)
PAIN_001 = ("PAIN_001", "PAIN_001_PAYMENT_INSTRUCTION", "PAIN_001_PAYMENT_TRANSACTION")


def wire(unit: str, flow: str, sequence: int | None, envelope_id: str, **objects: Any) -> bytes:
    """Return the JSON of an envelope."""
    event = {"eventName": f"Event{sequence}", "processFlowName": flow}
    return msgspec.json.encode(
        {
            "processingContext": {"unitOfWorkId": unit},
            "flow": flow,
            "sequence": sequence,
            "createdAt": "2026-03-28T23:33:55.941Z",
            "processObjects": [{"uniqueId": envelope_id, "objectType": "PROCESS_FLOW_EVENT", "object": event}],
            **objects,
        }
    )


def decoder(*, needs_sequence: bool = False) -> EnvelopeDecoder:
    return EnvelopeDecoder(DecodingSettings(needs_sequence=needs_sequence))


class Envelopes:
    """Makes envelopes of one unit; each call is the next record of its partition."""

    def __init__(self) -> None:
        self.offset = 0
        self._decoder = decoder()

    def __call__(self, sequence: int | None = None, flow: str = "A", **what: Any) -> DataEnvelope:
        """Make an envelope. `mds`, `custom` and `pds` name its objects; `identity` is its envelope id, `note` a part of its
        record.

        `bodies` gives the sizes in bytes of MDS objects by their types.
        """
        mds = [{"uniqueId": name, "objectType": name, "object": {"at": self.offset}} for name in what.get("mds", ())]
        mds += [{"objectType": name, "object": "x" * (size - 2)} for name, size in what.get("bodies", {}).items()]
        custom = [{"uniqueId": key, "key": key, "value": self.offset} for key in what.get("custom", ())]
        pds = [{"uniqueId": name, "name": name, "objectType": "T", "object": self.offset} for name in what.get("pds", ())]
        identity = what.get("identity", f"{flow}-{sequence}-{self.offset}")
        noted = {"note": what["note"]} if "note" in what else {}
        value = wire("uow-1", flow, sequence, identity, mdsObjects=mds, customObjects=custom, pdsObjects=pds, **noted)
        self.offset += 1
        decoded = self._decoder.decode(Record(Origin(PARTITION, self.offset), value, b"uow-1"))
        assert isinstance(decoded, DataEnvelope), decoded
        return decoded

    def again(self, envelope: DataEnvelope, **changes: Any) -> DataEnvelope:
        """Make another record with the same envelope id."""
        self.offset += 1
        record = msgspec.structs.replace(envelope.record, origin=Origin(PARTITION, self.offset))
        return msgspec.structs.replace(envelope, record=record, **changes)


class Recorder:
    """A handler that notifies of every envelope. It fails as often as a test says; on the envelope ids in `breaks`
    it always fails.
    """

    def __init__(self) -> None:
        self.failures: dict[str, list[Exception]] = {}
        self.breaks: dict[str, Exception] = {}
        self.seen: list[tuple[DataEnvelope, PaymentData, Marks, Instant]] = []

    def fail(self, envelope: DataEnvelope, *errors: Exception) -> None:
        self.failures[envelope.envelope_id] = list(errors)

    def handle(self, envelope: DataEnvelope, data: PaymentData, marks: Marks, now: Instant) -> Handled:
        self.seen.append((envelope, data, marks, now))
        if failures := self.failures.get(envelope.envelope_id):
            raise failures.pop(0)
        if envelope.envelope_id in self.breaks:
            raise self.breaks[envelope.envelope_id]
        notification = Notification(
            envelope.envelope_id, envelope.unit, "ACCP", b"{}", (("incomplete", (marks.incomplete or "").encode()),),
            envelope.record.origin,
        )  # fmt: skip
        return Handled((notification,))


class NoChance:
    """Random numbers that are always in the middle of their range."""

    def uniform(self, a: float, b: float) -> float:
        return (a + b) / 2


BACKLOG_WAIT_MS = 600_000


@dataclass
class Driven:
    """A unit with its clock, handler and output. With `reincarnates` it is restored from its stored form before each turn.

    With `keeps_events` its events are then those that came, and not decoded again: they may be such as IPF's format makes none.

    With `waits` the handler is called after the turn that accepts an envelope, and `answer` takes up its answer; with
    `answers_at_once` that is done after each turn.
    """

    strategy: Strategy
    settings: ResequencerSettings = field(default_factory=ResequencerSettings)
    handler: Recorder = field(default_factory=Recorder)
    now: Instant = 1_000_000
    left: list[Output] = field(default_factory=list)
    last: Turn | None = None
    stored: Snapshot | None = None
    reincarnates: bool = False
    keeps_events: bool = False
    came: dict[int, DataEnvelope] = field(default_factory=dict)
    chance: Chance = field(default_factory=NoChance)
    budget: int = WITHOUT_END
    profiles: Profiles | None = None
    orders: int = 0
    waits: bool = False
    answers_at_once: bool = False
    call: Call | None = None

    def __post_init__(self) -> None:
        self.unit = self.context.new_unit("uow-1")

    @property
    def context(self) -> TurnContext:
        context = TurnContext(self.strategy, self.handler, LATEST_OBJECTS, self.settings, self.chance, self.profiles)
        return msgspec.structs.replace(context, waits=self.waits)

    def arrive(self, *envelopes: DataEnvelope) -> Turn:
        """Let each envelope arrive in a turn of its own. Return the last turn."""
        for each in envelopes:
            self._turn((each,), ())
        assert self.last is not None
        return self.last

    def arrive_together(self, *envelopes: DataEnvelope, wakes: Iterable[Wake] = ()) -> Turn:
        return self._turn(envelopes, wakes)

    def wake(self, wake: Wake, after_ms: int = 0) -> Turn:
        self.now += after_ms
        return self._turn((), (wake,))

    def answer(self, outcome: Handled | Exception | None = None) -> Turn:
        """Take up the answer of the call under way: this one, or that of the handler."""
        call, self.call = self.call, None
        assert call is not None
        return self.take_up(Answer(call, outcome or self._handle(call)))

    def take_up(self, answer: Answer) -> Turn:
        """Take a turn with this answer, of whatever call."""
        return self._turn((), (), answer=answer)

    def is_of_head(self, call: Call) -> bool:
        """Whether the call is that of the head, as far as the unit knows."""
        head = self.unit.retry
        return head is not None and head.is_called and (call.envelope.offset, call.attempts) == (head.entry.offset, head.attempts)

    def _handle(self, call: Call) -> Handled | Exception:
        try:
            return self.handler.handle(call.envelope, call.data, call.marks, call.now)
        except Exception as error:
            return error

    def order(
        self, kind: OrderKind, *, unread_to: int | None = None, is_paused: bool = False, **what: Any
    ) -> OrderOutcome | None:
        """Give an order. A release and a skip name what the unit waits for now, unless the test says something else.

        With `unread_to` the partition has unread records up to there, for which the order may wait for ten minutes.
        Returns the outcome of this order, None if it has none yet.
        """
        self.orders += 1
        waits = None if self.last is None else self.last.waits
        seen = {} if waits is None else {"waits_for": waits.waits_for, "since": waits.since}
        given = {"by": "anna", "because": "a test", "at": self.now, "unit": "uow-1", **seen, **what}
        order = Order(id=f"order-{self.orders}", kind=kind, **given)
        until = None if is_paused else self.now + BACKLOG_WAIT_MS
        turn = self._turn((), (), (Ordered(order, 100 + self.orders, self.now, unread_to, until),))
        outcomes = [each for each in turn.output if isinstance(each, OrderOutcome)]
        return next((each for each in outcomes if each.order == order), None)

    @property
    def outcomes(self) -> list[OrderOutcome]:
        return [each for each in self.left if isinstance(each, OrderOutcome)]

    def expire(self) -> Turn:
        """Let the unit's deadline come."""
        assert self.last is not None
        assert self.last.waits is not None
        self.now = self.last.waits.wakes_at
        return self._turn((), (Wake.DEADLINE,))

    @property
    def has_remainder(self) -> bool:
        """Whether the last turn left a remainder."""
        return self.last is not None and self.last.waits is not None and self.last.waits.kind is WaitKind.REMAINDER

    def let_out_the_rest(self, turns: int = 1_000_000) -> None:
        """Release the remainder of the last turn, one budget per turn."""
        while self.has_remainder and turns:
            self.wake(Wake.REMAINDER)
            turns -= 1

    @property
    def handled(self) -> list[tuple[str, int | None]]:
        """Flow and sequence of the notifications, in order."""
        by_id = {each.envelope_id: each for each, *_ in self.handler.seen}
        left = [by_id[each.notification_id] for each in self.left if isinstance(each, Notification)]
        return [(each.flow, each.sequence) for each in left]

    @property
    def sequences(self) -> list[int | None]:
        return [sequence for _, sequence in self.handled]

    @property
    def dead(self) -> list[DeadLetter]:
        return [each for each in self.left if isinstance(each, DeadLetter)]

    @property
    def marks(self) -> list[Marks]:
        """The marks of each attempt, successful or failed, in order."""
        return [marks for _, _, marks, _ in self.handler.seen]

    def reincarnate(self) -> None:
        """Restore the unit from what was stored, as the next actor does."""
        if self.stored is not None:
            decode = (lambda record: self.came[record.origin.offset]) if self.keeps_events else decoder().decode
            self.unit = UnitCodec(self.strategy, decode, LATEST_OBJECTS).restore(PARTITION, self.stored)

    def _turn(
        self,
        envelopes: tuple[DataEnvelope, ...],
        wakes: Iterable[Wake],
        orders: Iterable[Ordered] = (),
        answer: Answer | None = None,
    ) -> Turn:
        self.came |= {each.offset: each for each in envelopes}
        if self.reincarnates:
            self.reincarnate()
        turn = self.last = take_turn(self.unit, envelopes, wakes, self.now, self.context, self.budget, orders, answer)
        self.left += turn.output
        self._store(turn)
        known = self.call if turn.called is not None and self.call is not None and self.is_of_head(self.call) else None
        self.call = turn.call or known
        while self.answers_at_once and answer is None and self.call is not None:
            self.answer()
        return turn

    def _store(self, turn: Turn) -> None:
        change = turn.change
        if change is None:
            return
        stash: dict[int, StashEntry] = {each.offset: each for each in self.stored.stash} if self.stored else {}
        for offset in change.stash_removed:
            del stash[offset]
        stash |= {each.offset: each for each in change.stash_added}
        data = self.stored.data if change.data is None and self.stored else change.data
        self.stored = Snapshot("uow-1", change.state, data, tuple(stash[offset] for offset in sorted(stash)))


def drive(name: str, custom: tuple[str, ...] = (), pds: tuple[str, ...] = (), **settings: Any) -> Driven:
    """Make a unit under the named strategy; `settings` are those of the strategy and of the resequencer."""
    own = {
        each: settings.pop(each)
        for each in ("first_sequence", "required_parts", "order_by", "reorder_window_ms")
        if each in settings
    }
    strategy = make_strategy(StrategySettings(name, custom_data_keys=custom, pds_data_keys=pds, **own))
    return Driven(strategy, ResequencerSettings(**settings))
