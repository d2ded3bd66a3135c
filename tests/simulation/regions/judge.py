"""What a region promises, and how a run is judged by it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import TYPE_CHECKING

import msgspec
from harness.crashes.outcomes import identity_of
from harness.service_under_test import Dead, Told

from guardian.headers import DEAD_LETTER_SOURCE_POSITION, POSSIBLE_DUPLICATE
from guardian.ports import Channel

if TYPE_CHECKING:
    from simulation.regions.sinks import Left
    from simulation.regions.world import RegionWorld

_NOTIFICATIONS_ONLY = frozenset({Channel.NOTIFICATIONS})


def find_wrong_sink(world: RegionWorld) -> str | None:
    """Find a sink whose records are not those that were committed: one is missing, there twice, or out of order."""
    has_changed = world.has_other_sinks
    for at, name in enumerate(world.sink_names):
        channels = frozenset(Channel) if at == 0 and not has_changed else _NOTIFICATIONS_ONLY
        left = world.left_through(name)
        remembers = name == "file" or world.servers[name].fences is not None
        problem = (
            (find_repetition(left, lambda each: is_sent_again(world, each)) or find_disorder(left))
            if remembers
            else find_disorder(first_of_each(left), world.losses)
        )
        problem = problem or _find_missing(world, left, channels, world.joined_at.get(name, 0))
        if problem is not None:
            return f"{name}: {problem}"
    if has_changed:
        everywhere = [each for name in (*world.servers, "file") for each in world.left_through(name)]
        return _find_missing(world, everywhere, frozenset({Channel.DEAD_LETTERS}), 0)
    return None


def find_repetition(left: Iterable[Left], is_allowed: Callable[[Left], bool]) -> str | None:
    """Find a record that is there twice, is not marked, and is not allowed."""
    seen: set[object] = set()
    for each in left:
        name = name_of(each)
        if name in seen and not is_marked(each) and not is_allowed(each):
            return f"{name} is there twice and not marked"
        seen.add(name)
    return None


def is_sent_again(world: RegionWorld, each: Left) -> bool:
    """Whether the producer sent the envelope of a notification again, and the storage lost an earlier message with it.

    A queue does not replay what was acknowledged, so the later message is the first one that the unit knows.
    """
    name = dict(each.record.headers).get("notification-id")
    sent = [] if name is None else [at for at, line in world.queues.lines.items() if b'"%b"' % name in line]
    return not world.lost.isdisjoint(sent[:-1])


def find_disorder(left: Iterable[Left], losses: int = 0) -> str | None:
    """Find a record whose number is not above that of the one before, in its partition and channel."""
    last: dict[object, int] = {}
    for each in () if losses else left:
        lane = each.partition, each.record.channel
        if each.record.number <= last.get(lane, 0):
            return f"{each.partition}#{each.record.number} came after #{last[lane]}"
        last[lane] = each.record.number
    return None


def first_of_each(left: Iterable[Left]) -> list[Left]:
    """Leave out what repeats an earlier record."""
    found: dict[object, Left] = {}
    for each in left:
        found.setdefault(name_of(each), each)
    return list(found.values())


def _find_missing(world: RegionWorld, left: Iterable[Left], channels: Collection[Channel], since: int) -> str | None:
    there = {name_of(each) for each in left}
    skipped = {name_of(each) for each in world.memory.committed[:since]}
    for numbered in world.memory.lasting.values():
        for each in numbered.values():
            if each.record.channel in channels and (name := name_of(each)) not in there and name not in skipped:
                return f"{name} is missing"
    return None


def find_lost_message(world: RegionWorld, lost: Collection[str]) -> str | None:
    """Find a message that was acknowledged and is in no history, except for those that the storage has forgotten."""
    missing = sorted(world.queues.acknowledged.keys() - world.history.keys() - set(lost))
    return f"acknowledged and lost: {missing}" if missing else None


def name_of(each: Left) -> tuple[str, object]:
    """A name that a notification keeps when it is made anew, and a dead letter while its record keeps its offset."""
    headers = dict(each.record.headers)
    name = "notification-id" if each.record.channel is Channel.NOTIFICATIONS else DEAD_LETTER_SOURCE_POSITION
    return each.record.channel.value, headers[name].decode()


def is_marked(each: Left) -> bool:
    return any(name == POSSIBLE_DUPLICATE for name, _ in each.record.headers)


def told_of(left: Iterable[Left]) -> tuple[Told, ...]:
    return tuple(_told(each) for each in left if each.record.channel is Channel.NOTIFICATIONS)


def dead_of(left: Iterable[Left]) -> tuple[Dead, ...]:
    return tuple(_dead(each) for each in left if each.record.channel is Channel.DEAD_LETTERS)


def values_of(notifications: Iterable[Told], dead: Iterable[Dead]) -> set[str]:
    """Names of everything told and dead that do not depend on offsets."""
    names = {each.identity for each in notifications}
    return names | {named if (named := identity_of(each)) != each.position else each.value.hex() for each in dead}


def _told(each: Left) -> Told:
    headers, value = dict(each.record.headers), msgspec.json.decode(each.record.value)
    incomplete = headers.get("incomplete")
    return Told(
        str(each.record.number),
        (each.record.key or b"").decode(),
        headers["notification-id"].decode(),
        value["sequence"],
        tuple(value["data"]),
        None if incomplete is None else incomplete.decode(),
        "late" in headers,
        is_marked(each),
    )


def _dead(each: Left) -> Dead:
    headers = dict(each.record.headers)
    return Dead(
        headers["dead-letter-source-position"].decode(),
        headers["dead-letter-reason"].decode(),
        each.record.value,
        headers["dead-letter-error"].decode(),
        is_marked(each),
    )
