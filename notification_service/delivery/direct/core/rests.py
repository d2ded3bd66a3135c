"""Which partitions are not read on for now, so that what is open takes a bounded part of the memory. Pure."""

from collections.abc import Mapping
from typing import NamedTuple

from notification_service.delivery.direct.core.decision import Stage
from notification_service.delivery.direct.core.partition import DirectPartition
from resequencer.record import Partition

AT_ONCE = 500
"""How many records a poll takes, and how many may be due, or open while the receiver sleeps, before no more are read."""

MAX_HELD = 256 << 20
"""About how many bytes the open records of a receiver take in one worker, apart from one poll of each partition."""

_LEAVING_BYTES = 8 << 20


class Pressure(NamedTuple):
    """`held_bytes` is about how much memory the open records of all stages take. `now` is in ms of the event loop's clock."""

    held_bytes: int
    now: int
    is_asleep: bool


def rests(stage: Stage, pressure: Pressure, states: Mapping[Partition, DirectPartition]) -> list[Partition]:
    """Return the partitions of a stage that are not read on for now."""
    is_full = pressure.held_bytes > MAX_HELD

    def is_resting(state: DirectPartition) -> bool:
        if state.pause is not None or state.ready_count >= AT_ONCE or state.leaving_bytes >= _LEAVING_BYTES:
            return True
        if is_full and state.held_bytes > MAX_HELD // (4 * len(states)):
            return True
        return (pressure.is_asleep and state.open_count >= AT_ONCE) or waits_for_its_time(stage, state, pressure.now)

    return [name for name, state in states.items() if is_resting(state)]


def waits_for_its_time(stage: Stage, state: DirectPartition, now: int) -> bool:
    """Return whether a retry topic has nothing to be delivered before later: what is read behind it would wait as long."""
    return bool(stage.delay_ms) and (state.find_next_due() or 0) > now
