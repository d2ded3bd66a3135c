"""What a long stash costs: `python -m benchmarks.stash`.

A unit of 1 000 envelopes comes in order, so that none is stashed; in random order; and reversed, so that 999 wait for the last.
They go through the core in the process (storage none) and the whole worker (file transport, embedded storage). Costs are in CPU
microseconds per envelope:

    at a stretch    one unit after the other: a poll brings 500 envelopes of one unit
    one per poll    twenty units in parallel: a poll brings one envelope of each, and each stash is committed

They take turns, `--rounds` times, and the best round counts, because other load can only add to the cost.
"""

import argparse
import random
from collections.abc import Callable
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import msgspec

from benchmarks._worker import in_process, on_files, run_through
from guardian.gc_tuning import calm_collector
from guardian.headers import ENVELOPE_ID
from notification_service.connectors.line_format import Line, encode_line

LENGTH = 1_000
UNITS = 20
DEAREST = 3.0
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


def core(order: str, shape: str) -> float:
    with TemporaryDirectory(prefix="resequencer-benchmark-") as directory:
        cycle, transport = in_process(_lines(order, shape), Path(directory), *_settings(shape))
        calm_collector()
        spent = run_through(cycle, UNITS * LENGTH)
        _see_order(transport.left)
    return spent.cpu


def worker(order: str, shape: str) -> float:
    with TemporaryDirectory(prefix="resequencer-benchmark-") as directory:
        cycle = on_files(_lines(order, shape), Path(directory), *_settings(shape)).cycle
        calm_collector()
        spent = run_through(cycle, UNITS * LENGTH)
        _see_order((Path(directory) / "out" / "notifications.jsonl").read_bytes().splitlines())
    return spent.cpu


def _settings(shape: str) -> tuple[str, ...]:
    return (f"ipf.processing-data.ingress.batch-size={SHAPES[shape].batch_size}",)


def _lines(order: str, shape: str) -> list[bytes]:
    numbers = list(range(1, LENGTH + 1))
    ORDERS[order](numbers)
    abreast = SHAPES[shape].abreast
    rows = [range(first, first + abreast) for first in range(0, UNITS, abreast)]
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


def _see_order(left: list[bytes]) -> None:
    """Check the order of the output: a wrong result has no speed."""
    last: dict[str, int] = {}
    for line in left:
        unit, _, number = msgspec.json.decode(line)["headers"][ENVELOPE_ID].partition("#")
        assert int(number) == last.get(unit, 0) + 1, f"{unit} is out of order at {number}"
        last[unit] = int(number)
    assert last == {f"unit-{unit}": LENGTH for unit in range(UNITS)}, "not all has left"


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--rounds", type=int, default=1, help="default: %(default)s")
    rounds = arguments.parse_args().rounds
    print(f"{'':32}{'sorted':>10}{'shuffled':>10}{'reversed':>10}{'of sorted':>11}{'goal':>8}")
    is_met = True
    with get_context("spawn").Pool(1, maxtasksperchild=1) as processes:
        for shape in SHAPES:
            for name, measure in (("core in process", core), ("whole worker", worker)):
                spent = [{order: processes.apply(measure, (order, shape)) for order in ORDERS} for _ in range(rounds)]
                best = {order: min(each[order] for each in spent) / (UNITS * LENGTH) * 1_000_000 for order in ORDERS}
                ratio = best["reversed"] / best["sorted"]
                is_met = is_met and ratio <= DEAREST
                costs = "".join(f"{best[order]:10.1f}" for order in ORDERS)
                print(f"{name + ', ' + shape:32}{costs}{ratio:11.2f}{f'<= {DEAREST:.0f}':>8}", flush=True)
    print(f"\na reversed stash of {LENGTH} costs at most {DEAREST:.0f} times a sorted one: {'met' if is_met else 'NOT met'}")


if __name__ == "__main__":
    main()
