"""The story of one unit: how its envelopes arrived, and what the service did about each."""

from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum
from pathlib import Path

import msgspec

from guardian.ports import TransportRefused
from notification_service.connectors.line_format import Line, decode_line
from notification_service.simulator.expectation import Expected, ExpectedUnit
from resequencer.event import Decoder, Event
from resequencer.record import Origin, Partition, Record

_CANDIDATES = 5_000
"""The maximum number of units that are examined."""

_read_expected = msgspec.json.Decoder(Expected).decode


class StepKind(StrEnum):
    """What happened to an envelope."""

    ARRIVED = "arrived"
    STASHED = "stashed"
    HANDLED = "handled"
    DUPLICATE = "duplicate"
    RELEASED = "released"


class Step(msgspec.Struct, frozen=True):
    """One step of the story. `event` names the events, `note` gives the reason (`waits for sequence:1`); both may be empty."""

    kind: StepKind
    sequence: int
    flow: str
    event: str
    note: str = ""


def find_unit(expectations: Iterable[bytes]) -> ExpectedUnit | None:
    """Return a unit that makes a good example: nothing lost, late or contradicted, one numbering, and some disorder.

    `expectations` are lines of `expected.jsonl`; the best of the first few thousand units is chosen.
    """
    best, best_score, looked_at = None, 0, 0
    for line in expectations:
        unit = _read_expected(line)
        if not isinstance(unit, ExpectedUnit):
            continue
        score = _interest(unit)
        if score > best_score:
            best, best_score = unit, score
        looked_at += 1
        if looked_at == _CANDIDATES:
            break
    return best


def arrivals_of(unit: ExpectedUnit, in_directory: Path, decoder: Decoder) -> tuple[Event, ...]:
    """Return the unit's events in the order of its partition file, duplicates included.

    Raises:
        TransportRefused: The file cannot be read.
    """
    path = in_directory / f"partition-{unit.partition}.jsonl"
    try:
        with path.open("rb") as file:
            return tuple(_arrivals(unit, file, decoder))
    except OSError as error:
        raise TransportRefused(str(path), f"{error.strerror or error}; run `simulate` first") from error


def render_story(steps: Sequence[Step]) -> tuple[str, ...]:
    """Return a line per arrival with its immediate effect, and an indented line for each further step that it caused."""
    has_flows = len({step.flow for step in steps}) > 1
    lines: list[str] = []
    arrived: Step | None = None
    for step in steps:
        if step.kind is StepKind.ARRIVED:
            lines.append(f"arrived {_named(step, has_flows=has_flows)}{_noted(step)}")
            arrived = step
        elif arrived is not None and (step.flow, step.sequence) == (arrived.flow, arrived.sequence):
            lines[-1] += f"  {step.kind}{_noted(step)}"
            arrived = None
        else:
            lines.append(f"  {step.kind} {_named(step, has_flows=has_flows)}{_noted(step)}")
            arrived = None
    return tuple(line.rstrip() for line in lines)


def _arrivals(unit: ExpectedUnit, lines: Iterable[bytes], decoder: Decoder) -> Iterator[Event]:
    """Yield the unit's arrivals. Only lines that contain the unit's name are decoded; it may be part of another name."""
    name = unit.unit.encode()
    offset = 0
    for line in lines:
        read = decode_line(line[:-1]) if name in line and line.endswith(b"\n") else None
        if isinstance(read, Line):
            origin = Origin(Partition("story", unit.partition), offset)
            event = decoder.decode(Record(origin, read.value, read.key, read.headers))
            if isinstance(event, Event) and event.unit == unit.unit:
                yield event
        offset += len(line)


def _interest(unit: ExpectedUnit) -> int:
    """Score a unit: inverted pairs count for it, length against it; 0 for units that are unsuitable."""
    arrived = [each.arrived for each in unit.envelopes if each.arrived is not None and not each.late]
    if len(arrived) != len(unit.envelopes) or not 4 <= len(arrived) <= 8 or any(each.conflicts for each in unit.envelopes):
        return 0
    if unit.numbering != "shared" and len(unit.flows) > 1:
        return 0
    inversions = sum(later < earlier for at, earlier in enumerate(arrived) for later in arrived[at + 1 :])
    if not 2 <= inversions <= len(arrived):
        return 0
    has_one_duplicate = sum(each.duplicates for each in unit.envelopes) == 1
    return 100 + 5 * inversions + 10 * has_one_duplicate - 3 * abs(len(arrived) - 5)


def _named(step: Step, *, has_flows: bool) -> str:
    flow = f"  {step.flow}" if has_flows else ""
    return f"{step.sequence:>2}  {step.event or '(data only)':<20}{flow}"


def _noted(step: Step) -> str:
    return f" ({step.note})" if step.note else ""
