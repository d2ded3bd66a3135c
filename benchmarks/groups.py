"""What groups cost: `python -m benchmarks.groups [--streams] [--large]`.

On a broker of its own, with four partitions. Measured are:

    speed      Commands per second of the processor of a store (notification_service/aggregation/), with the payments of
    messages, against a bare loop
               with the same client: poll, then one transaction that writes as many records of the same sizes, with the offsets.
               Once all payments are in one group, once each is a group of its own, once a hundred are in each group, whose
               commands come interleaved with Zipf keys. One command in a hundred comes twice.
    stages     CPU microseconds of a command, by what is done with it, without a broker. It is the figure that other work on the
               machine affects least.
    latency    Milliseconds from when the last command of a group was appended until its completion can be read, while commands
               come at a steady rate, after a warm-up. One group has one latency.
    restoring  Seconds in which a worker has the values of four partitions, from their topic and from its local copy, against a
               bare read of that topic.

Each program runs in a process of its own, in turns; the best of `--rounds` counts. With `--streams` Kafka Streams does the same
on the same topics, exactly once and with one thread (benchmarks/java; Maven fetches its jars). Its program is new at each round,
so that a short run is mostly its compiler's.

It fails if a group does not complete exactly once with all of its payments, if anything becomes a dead letter, or if values are
missing.
"""

import argparse
from collections.abc import Callable, Sequence
from functools import partial
from multiprocessing import get_context
from typing import NamedTuple

from benchmarks._groups.commands import Shape, commands_of
from benchmarks._groups.latency import latencies
from benchmarks._groups.programs import bare, look_at, processor
from benchmarks._groups.restoring import bare_read, fill, restore
from benchmarks._groups.stage import Broker, Job, Load, check, new_job, running, send, sending
from benchmarks._groups.stages import stages
from benchmarks._groups.streams import streams
from benchmarks._worker import Spent

LOOP, PROCESSOR, STREAMS = "bare loop", "processor", "Kafka Streams"
GOAL = 0.7
"""The share of the bare loop's commands per second."""

RESTORED_GOAL, COPIED_GOAL = 20, 2
"""Seconds for 1 000 000 values."""

_STAGES_MOST = 100_000
"""As many payments are enough for the stages."""

_PARTS = ("speed", "stages", "latency", "restoring")


class Measured(NamedTuple):
    """`broker` are CPU seconds of the broker."""

    spent: Spent
    broker: float


def measured(measure: Callable[[Job], Spent], job: Job) -> Measured:
    before = job.broker.cpu
    with get_context("spawn").Pool(1) as processes:
        spent = processes.apply(measure, (job,))
    return Measured(spent, job.broker.cpu - before)


def show_speed(broker: Broker, shape: Shape, members: int, rounds: int, *, has_streams: bool) -> None:
    load = _filled(broker, shape, members)
    first = new_job(broker, PROCESSOR, load)
    measured(processor, first)  # It warms up the broker's compiler, and tells what is written.
    check(first)
    written = look_at(first)
    programs: dict[str, Callable[[Job], Spent]] = {LOOP: partial(bare, written=written), PROCESSOR: processor}
    programs |= {STREAMS: streams} if has_streams else {}
    best = {name: _best(broker, name, program, load, rounds) for name, program in programs.items()}
    count = load.count
    print(f"\n{shape.value}: {members:,} payments, {count:,} commands, {written.per_command:.2f} records written for each")
    print(f"{'':16}{'commands/s':>12}{'of bare':>9}{'goal':>6}{'CPU us':>9}{'of bare':>9}{'broker':>9}")
    for name, each in best.items():
        ratios = [of / own for of, own in zip(best[LOOP].spent, each.spent, strict=True)]
        goal = GOAL if name == PROCESSOR else ""
        speed = f"{count / each.spent.wall:12,.0f}{ratios[0]:9.2f}{goal:>6}"
        print(f"{name:16}{speed}{each.spent.cpu / count * 1e6:9.1f}{ratios[1]:9.2f}{each.broker / count * 1e6:9.1f}", flush=True)
    if has_streams:
        wall, cpu = (of / own for of, own in zip(best[STREAMS].spent, best[PROCESSOR].spent, strict=True))
        print(f"the processor has {wall:.2f} of the speed of Kafka Streams, and {cpu:.2f} by CPU")


def _filled(broker: Broker, shape: Shape, members: int) -> Load:
    topic, count = f"commands-{shape.name.lower()}", 0
    broker.make_topics(topic)
    with sending(broker) as producer:
        for each in commands_of(shape, members):
            send(producer, topic, each)
            count += 1
    return Load(topic, count, shape, members)


def _best(broker: Broker, name: str, program: Callable[[Job], Spent], load: Load, rounds: int) -> Measured:
    found = []
    for _ in range(rounds):
        job = new_job(broker, name, load)
        found.append(measured(program, job))
        if name != LOOP:
            check(job)
    spent = Spent(min(each.spent.wall for each in found), min(each.spent.cpu for each in found))
    return Measured(spent, min(each.broker for each in found))


def show_stages(members: int, rounds: int) -> None:
    for at, shape in enumerate(Shape):
        found = [stages(shape, members) for _ in range(rounds)]
        count = found[0][0]
        least = {name: min(each.seconds[name] for _, each in found) / count * 1e6 for name in found[0][1].seconds}
        if not at:
            print(f"\nCPU us for each command{'':7}" + "".join(f"{name:>14}" for name in least) + f"{'sum':>8}")
        print(
            f"{shape.value:30}" + "".join(f"{each:14.1f}" for each in least.values()) + f"{sum(least.values()):8.1f}", flush=True
        )


def show_latency(broker: Broker, rate: float, seconds: float, *, has_streams: bool) -> None:
    print(f"\nms to the completion, {rate:g} commands/s{'':6}{'groups':>8}{'median':>9}{'99 %':>9}{'longest':>9}")
    programs = {PROCESSOR: processor} | ({STREAMS: streams} if has_streams else {})
    for shape in Shape:
        for name, program in programs.items():
            found = latencies(broker, name, program, shape, round(rate * seconds / 100) * 100, rate)
            at = [found[min(int(len(found) * share), len(found) - 1)] for share in (0.5, 0.99, 1)]
            print(f"{name + ', ' + shape.value:40}{len(found):8,}" + "".join(f"{each:9.1f}" for each in at), flush=True)


def show_restoring(broker: Broker, values: int) -> None:
    job = new_job(broker, "restoring", Load("commands-restored", 0))
    broker.make_topics(job.load.commands)
    there = fill(job, round(values / 101) * 100)
    with get_context("spawn").Pool(1, maxtasksperchild=1) as processes:
        bare_spent, records = processes.apply(bare_read, (job,))
        found = {name: processes.apply(restore, (job, there)) for name in ("from the topic", "from the copy")}
    goals = {"from the topic": RESTORED_GOAL, "from the copy": COPIED_GOAL}
    print(f"\n{there:,} values, {records:,} records{'':12}{'s':>8}{'CPU s':>8}{'of bare':>9}{'goal for a million, s':>24}")
    for name, spent in {"bare read": bare_spent, **found}.items():
        ratio = f"{spent.wall / bare_spent.wall:9.2f}{goals.get(name, ''):>24}"
        print(f"{name:40}{spent.wall:8.2f}{spent.cpu:8.2f}{ratio}", flush=True)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--members", type=int, default=20_000, help="payments in all groups together (default: %(default)s)")
    parser.add_argument("--values", type=int, default=50_000, help="values to restore (default: %(default)s)")
    parser.add_argument("--large", action="store_true", help="1 000 000 payments, and 1 000 000 values")
    parser.add_argument("--rate", type=float, default=500, help="commands a second for the latency (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=15, help="its duration, warm-up included (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=1, help="default: %(default)s")
    parser.add_argument("--streams", action="store_true", help="Kafka Streams, too")
    parser.add_argument("--shapes", choices=[each.name.lower() for each in Shape], nargs="*", help="default: all")
    parser.add_argument("--only", choices=_PARTS, nargs="*", default=_PARTS, help="default: all")
    chosen = parser.parse_args(arguments)
    members, values = (1_000_000, 1_000_000) if chosen.large else (chosen.members, chosen.values)
    shapes = [each for each in Shape if chosen.shapes is None or each.name.lower() in chosen.shapes]
    if "stages" in chosen.only:
        show_stages(min(members, _STAGES_MOST), max(chosen.rounds, 3))
    if {*chosen.only} == {"stages"}:
        return
    with running() as broker:
        for shape in shapes if "speed" in chosen.only else ():
            show_speed(broker, shape, members, chosen.rounds, has_streams=chosen.streams)
        if "latency" in chosen.only:
            show_latency(broker, chosen.rate, chosen.seconds, has_streams=chosen.streams)
        if "restoring" in chosen.only:
            show_restoring(broker, values)


if __name__ == "__main__":
    main()
