"""Lines of a payment flow, most of them damaged: input that must not stop a worker."""

from collections import deque
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from random import Random
from shutil import rmtree

from fuzz.corruption import CORRUPTIONS
from fuzz.mutation import mutated

from notification_service.simulator.generate.plan import Plan
from notification_service.simulator.generate.simulation import simulate

PARTITIONS = 3
UNITS_AT_ONCE = 1_000
TIMES = 10
SOUND_SHARE = 0.4
_NEIGHBOURS = 200


def garbled_lines(seed: int, directory: Path) -> Iterator[tuple[int, bytes]]:
    """Yield partitions and lines with their newline, without end; the same for the same seed. `directory` is for temporary files.

    Two fifths are as the simulator writes them: out of order, doubled, contradicted, and some garbage. Half of the others get
    meaningful changes (types, ids, numbers, repeated names). The rest are changed blindly, which may make no line or several
    lines of one.
    """
    rng = Random(seed)
    neighbours: deque[bytes] = deque([b"{}"], maxlen=_NEIGHBOURS)
    for partition, line in _simulated(seed, directory):
        neighbours.append(line)
        chance = rng.random()
        if chance < SOUND_SHARE:
            yield partition, line + b"\n"
        elif chance < SOUND_SHARE + (1 - SOUND_SHARE) / 2:
            yield partition, rng.choice(CORRUPTIONS)(rng, line) + b"\n"
        else:
            yield partition, mutated(rng, line, neighbours, most=3) + b"\n"


def _simulated(seed: int, directory: Path) -> Iterator[tuple[int, bytes]]:
    """Yield the lines of one simulation after the other. Each is used several times under other unit names, which is faster."""
    for number in count():
        of_this_one = seed * 100_000 + number
        plan = Plan(
            units=UNITS_AT_ONCE, seed=of_this_one, partitions=PARTITIONS, window=100,
            duplicates=0.04, conflicts=0.02, losses=0.005, late=0, garbage=0.05,
        )  # fmt: skip
        simulate(plan, directory / "in", directory / "expected.jsonl", lambda *_: None, lambda _: None)
        lines = list(_read(directory / "in"))
        rmtree(directory)
        for again in range(TIMES):
            name, other = b"sim-%d-" % of_this_one, b"sim-%d.%d-" % (of_this_one, again)
            yield from ((partition, line.replace(name, other)) for partition, line in lines)


def _read(directory: Path) -> Iterator[tuple[int, bytes]]:
    """Yield the partitions' lines in turns."""
    files = [file.open("rb") for file in sorted(directory.iterdir())]
    waiting = dict(enumerate(files))
    while waiting:
        for partition, file in list(waiting.items()):
            line = file.readline()
            if line:
                yield partition, line[:-1]
            else:
                file.close()
                del waiting[partition]
