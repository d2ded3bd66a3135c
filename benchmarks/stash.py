"""What a long stash costs: `python -m benchmarks.stash`.

A unit of 1 000 envelopes comes in order, so that none is stashed; in random order; and reversed, so that 999 wait for the last.
They go through the core in the process (storage none) and the whole worker (file transport, embedded storage). Costs are in CPU
microseconds per envelope; ratios are to the sorted ones:

    at a stretch    one unit after the other: a poll brings 500 envelopes of one unit
    one per poll    twenty units in parallel: a poll brings one envelope of each, and each stash is committed
"""

import random
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import msgspec

from benchmarks._runner import Case, Figures, apart, arguments, directory, measure
from benchmarks._worker import in_process, on_files, run_through
from guardian.headers import ENVELOPE_ID
from notification_service.connectors.line_format import Line, encode_line
from resequencer.gc_tuning import calm_collector

LENGTH = 1_000
UNITS = 20
FLOW = "PaymentInitiationFlow"
ORDERS: dict[str, Callable[[list[int]], object]] = {
    "sorted": list.sort,
    "shuffled": random.Random(7).shuffle,
    "reversed": list.reverse,
}


class Shape(NamedTuple):
    """The number of parallel units, and the number of envelopes per poll."""

    abreast: int
    batch_size: int


SHAPES = {"at a stretch": Shape(1, 500), "one per poll": Shape(UNITS, UNITS)}


def measured(place: str, shape: Shape, order: str) -> Figures:
    lines, setting = _lines(order, shape), f"ipf.processing-data.ingress.batch-size={shape.batch_size}"
    with directory() as name:
        if place == "core":
            cycle, transport = in_process(lines, name, setting)
        else:
            cycle = on_files(lines, name, setting).cycle
        calm_collector()
        spent = run_through(cycle, UNITS * LENGTH)
        file = name / "out" / "notifications.jsonl"
        _see_order(transport.output if place == "core" else file.read_bytes().splitlines())
    return {"CPU us": spent.of_each(UNITS * LENGTH)["CPU us"]}


def _lines(order: str, shape: Shape) -> list[bytes]:
    numbers = list(range(1, LENGTH + 1))
    ORDERS[order](numbers)
    rows = [range(first, first + shape.abreast) for first in range(0, UNITS, shape.abreast)]
    return [_line(f"unit-{unit}", number) for row in rows for number in numbers for unit in row]


def _line(unit: str, number: int) -> bytes:
    event = {"eventName": "PaymentAccepted", "processFlowName": FLOW}
    body = {
        "processingContext": {"unitOfWorkId": unit},
        "flow": FLOW,
        "sequence": number,
        "pdsObjects": [{"uniqueId": "p", "name": "pdsBusinessData", "object": {"value": "x" * 700}}],
        "processObjects": [{"uniqueId": f"{unit}#{number}", "objectType": "PROCESS_FLOW_EVENT", "object": event}],
    }
    return encode_line(Line(msgspec.json.encode(body), unit.encode()))


def _see_order(output: list[bytes]) -> None:
    """Check the order of the output: a wrong result has no speed."""
    last: dict[str, int] = {}
    for line in output:
        unit, _, number = msgspec.json.decode(line)["headers"][ENVELOPE_ID].partition("#")
        assert int(number) == last.get(unit, 0) + 1, f"{unit} is out of order at {number}"
        last[unit] = int(number)
    assert last == {f"unit-{unit}": LENGTH for unit in range(UNITS)}, "an output is missing"


def main() -> None:
    chosen = arguments(__doc__)
    cases = [
        Case(f"{place}, {name}, {order}", partial(apart, measured, place, shape, order), f"{place}, {name}, sorted", "at most 3")
        for name, shape in SHAPES.items()
        for place in ("core", "worker")
        for order in ORDERS
    ]
    measure(chosen, cases, {"CPU us": 1})


if __name__ == "__main__":
    main()
