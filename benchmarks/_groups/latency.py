"""From the last command of a group to its completion, while commands come at a steady rate."""

import time
from collections.abc import Callable, Sequence
from multiprocessing import get_context

from kafka import KafkaProducer

from benchmarks._groups.commands import Sent, Shape, commands_of
from benchmarks._groups.stage import Broker, Job, Load, WrongResult, check, new_job, reader, records_of, send
from benchmarks._worker import Spent
from guardian.headers import GROUP_ID, MEMBER

WARM_UP_SECONDS = 5
_GIVE_UP_SECONDS = 120


def latencies(broker: Broker, name: str, measure: Callable[[Job], Spent], shape: Shape, members: int, rate: float) -> list[float]:
    """Return the milliseconds of each group whose last command came after the warm-up, ascending.

    The time starts when the broker appended the command, by its timestamp, and ends when a reader of what is committed, a process
    of its own, has the completion.
    """
    sent = list(commands_of(shape, members))
    load = Load(f"commands-for-{name.replace(' ', '-')}-{shape.name.lower()}", len(sent), shape, members)
    job = new_job(broker, name, load)
    broker.make_topics(load.commands, message_timestamp_type="LogAppendTime")
    with get_context("spawn").Pool(2) as processes:
        program = processes.apply_async(measure, (job,))
        seen_at = processes.apply_async(_seen_at, (job, members // shape.total(members)))
        while not job.is_ready():
            time.sleep(0.1)
        _send_steadily(job, sent, rate)
        seen = seen_at.get()
        program.get()
    check(job)
    came = _last_came_at(job)
    counts_from = min(came.values()) + (WARM_UP_SECONDS if len(came) > 1 else 0)
    return sorted((seen[group] - at) * 1_000 for group, at in came.items() if at >= counts_from)


def _seen_at(job: Job, groups: int) -> dict[str, float]:
    """Return when the completion of each group could be read."""
    seen: dict[str, float] = {}
    give_up: float | None = None
    with reader(job.broker, job.completions) as consumer:
        while len(seen) < groups:
            found = consumer.poll(timeout_ms=500)
            now = time.time()
            seen |= {dict(each.headers)[GROUP_ID].decode(): now for records in found.values() for each in records}
            give_up = now + _GIVE_UP_SECONDS if found or give_up is None else give_up
            if now > give_up:
                raise WrongResult(f"{len(seen)} of {groups} groups have completed")
    return seen


def _last_came_at(job: Job) -> dict[str, float]:
    """Return when the last member of each group came, for the first time."""
    known, last = set[tuple[bytes, bytes]](), dict[str, float]()
    for each in records_of(job.broker, job.load.commands):
        member = each.key, dict(each.headers)[MEMBER]
        if member not in known:
            known.add(member)
            last[each.key.decode()] = each.timestamp / 1_000
    return last


def _send_steadily(job: Job, sent: Sequence[Sent], rate: float) -> None:
    """Send the commands at the rate, and catch up after a delay."""
    producer = KafkaProducer(bootstrap_servers=job.broker.bootstrap, linger_ms=0)
    began = time.monotonic()
    for place, each in enumerate(sent):
        if (early := began + place / rate - time.monotonic()) > 0:
            time.sleep(early)
        send(producer, job.load.commands, each)
    producer.flush()
    producer.close()
