"""The story of one unit: runs its arrivals through the pure core again, and compares the result with the service's output."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random

import msgspec

from guardian.headers import NOTIFICATION_ID
from notification_service.configuration.configuration import Configuration
from notification_service.connectors.files.operations import SystemFiles
from notification_service.connectors.files.scan import scan_output
from notification_service.connectors.line_format import Line, decode_line
from notification_service.events.decoding import DecodingSettings, EnvelopeDecoder
from notification_service.simulator.verify.story import Arrival, Step, StepKind
from notification_service.wiring.composition import make_strategy_of, resequencer_settings
from resequencer.clock import Instant
from resequencer.envelope import DataEnvelope
from resequencer.handler import Handled, Marks
from resequencer.notification import notification_id
from resequencer.payment_data import PaymentData
from resequencer.record import Origin, Partition, Record
from resequencer.turn.decide import take_turn
from resequencer.turn.turn import Turn, TurnContext
from resequencer.unit import Unit


class Telling(msgspec.Struct, frozen=True):
    """The steps of the story, and the envelopes in the order in which they were handled."""

    steps: tuple[Step, ...]
    handled: tuple[DataEnvelope, ...]


class Output(msgspec.Struct, frozen=True):
    """A unit's notifications in the order of the output: ids and values."""

    ids: tuple[str, ...]
    values: tuple[bytes, ...]


class _Listener:
    """A handler that only records which envelopes were handled."""

    def __init__(self) -> None:
        self.heard: list[DataEnvelope] = []

    def handle(self, envelope: DataEnvelope, data: PaymentData, marks: Marks, now: Instant) -> Handled:
        del data, marks, now
        self.heard.append(envelope)
        return Handled()


def tell(arrivals: Sequence[Arrival], configuration: Configuration) -> Telling:
    """Return the decisions of the unit's own pure code about these arrivals, one after the other."""
    strategy, listener = make_strategy_of(configuration), _Listener()
    context = TurnContext(strategy, listener, resequencer_settings(configuration), Random(0))  # noqa: S311 - nothing is retried here.
    decoder = EnvelopeDecoder(DecodingSettings(strategy.needs_sequence))
    unit = Unit("", strategy.initial())
    steps: list[Step] = []
    events = {arrival.envelope_id: ", ".join(arrival.events) for arrival in arrivals}
    for arrival in arrivals:
        envelope = _decoded(arrival, decoder)
        before = len(listener.heard)
        turn = take_turn(unit, (envelope,), (), 0, context)
        steps.append(_step(StepKind.ARRIVED, envelope, events))
        steps += _consequences(envelope, turn, listener.heard[before:], events)
    return Telling(tuple(steps), tuple(listener.heard))


def read_output(unit: str, notifications: Path) -> Output:
    """Read this unit's notifications from the output file and its rotated files."""
    ids, values = [], []
    for line in _lines_of(unit, notifications):
        ids.append(dict(line.headers)[NOTIFICATION_ID].decode())
        values.append(line.value)
    return Output(tuple(ids), tuple(values))


def agrees(telling: Telling, output: Output) -> bool:
    """Return whether the service sent, in this order, the notifications of the envelopes that the story handled.

    Events without a setting cause no notification.
    """
    told = [
        notification_id(envelope.unit, envelope.envelope_id, index)
        for envelope in telling.handled
        for index, _ in enumerate(envelope.process_objects)
    ]
    left = set(output.ids)
    return list(output.ids) == [each for each in told if each in left]


def _consequences(envelope: DataEnvelope, turn: Turn, handled: Sequence[DataEnvelope], events: dict[str, str]) -> Iterator[Step]:
    if turn.duplicates:
        yield _step(StepKind.DUPLICATE, envelope, events, "dropped")
    elif turn.added:
        waits = turn.waits
        yield _step(StepKind.STASHED, envelope, events, f"waits for {waits.waits_for}" if waits else "")
    for each in handled:
        yield _step(StepKind.HANDLED, each, events)


def _step(kind: StepKind, envelope: DataEnvelope, events: dict[str, str], note: str = "") -> Step:
    return Step(kind, envelope.sequence or 0, envelope.flow, events.get(envelope.envelope_id, ""), note)


def _decoded(arrival: Arrival, decoder: EnvelopeDecoder) -> DataEnvelope:
    line = decode_line(arrival.line)
    assert isinstance(line, Line)
    origin = Origin(Partition("story", arrival.partition), arrival.offset)
    envelope = decoder.decode(Record(origin, line.value, line.key, line.headers))
    assert isinstance(envelope, DataEnvelope)
    return envelope


def _lines_of(unit: str, notifications: Path) -> Iterator[Line]:
    name = unit.encode()
    for _, found in scan_output(notifications, SystemFiles()):
        line = decode_line(found.content) if name in found.content else None
        if isinstance(line, Line) and line.key == name:
            yield line
