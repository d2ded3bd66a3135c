"""The story of one unit: how its envelopes arrived, and what the service did about each."""

from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum
from pathlib import Path

import msgspec

from guardian.ports import TransportRefused
from notification_service.connectors.line_format import Line, decode_line
from notification_service.simulator.expectation import Expected, ExpectedUnit

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


class Arrival(msgspec.Struct, frozen=True):
    """One line of a unit, duplicates included. `line` has no newline; `offset` is its start in the partition file."""

    partition: int
    offset: int
    envelope_id: str
    sequence: int
    flow: str
    events: tuple[str, ...]
    line: bytes


class _Event(msgspec.Struct, rename="camel"):
    event_name: str = ""


class _Process(msgspec.Struct, rename="camel"):
    object: _Event
    unique_id: str | None = None


class _Envelope(msgspec.Struct, rename="camel"):
    flow: str
    sequence: int
    process_objects: tuple[_Process, ...] = ()


_read_envelope = msgspec.json.Decoder(_Envelope).decode


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


def arrivals_of(unit: ExpectedUnit, in_directory: Path) -> tuple[Arrival, ...]:
    """Return the unit's lines in the order of its partition file.

    Raises:
        TransportRefused: The file cannot be read.
    """
    path = in_directory / f"partition-{unit.partition}.jsonl"
    try:
        with path.open("rb") as file:
            return tuple(_arrivals(unit, file))
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


def _arrivals(unit: ExpectedUnit, lines: Iterable[bytes]) -> Iterator[Arrival]:
    """Yield the unit's arrivals. Only lines that contain the unit's name are decoded; it may be part of another name."""
    name = unit.unit.encode()
    offset = 0
    for line in lines:
        read = decode_line(line[:-1]) if name in line and line.endswith(b"\n") else None
        if isinstance(read, Line) and read.key == name:
            envelope = _read_envelope(read.content)
            first = envelope.process_objects[0].unique_id if envelope.process_objects else None
            envelope_id = first or f"{envelope.flow}#{envelope.sequence}"
            events = tuple(each.object.event_name for each in envelope.process_objects)
            yield Arrival(unit.partition, offset, envelope_id, envelope.sequence, envelope.flow, events, line[:-1])
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
