"""What the history of `history.py` comes to, told by hand: the fixtures were not asked."""

from typing import NamedTuple

from compatibility.history import IDLE
from harness.service_under_test import P0, P1

from resequencer.storage_port import WaitKind


class Held(NamedTuple):
    """What waits in a unit: ids of envelopes, the head of a retry first, then the stash from its top, then the queue."""

    kind: WaitKind
    waits_for: str
    ids: tuple[str, ...]


FOR_A_WHILE = "after TransientError: the teller is away"
WAITING = {
    "waits": Held(WaitKind.DEADLINE, "sequence:1", ("waits#B#3", "waits#A#4", "waits#A#5")),
    "waits-for-a-server": Held(WaitKind.DEPENDENCY, "server", ("waits-for-a-server#A#1", "waits-for-a-server#A#2")),
    "tries-again": Held(WaitKind.RETRY, f"attempt 3 of 3, {FOR_A_WHILE}", ("tries-again#A#1", "tries-again#A#2")),
    "tries-again-forced": Held(
        WaitKind.RETRY, f"attempt 2 of 3, {FOR_A_WHILE}", ("tries-again-forced#B#3", "tries-again-forced#B#5")
    ),
    "lets-out": Held(WaitKind.REMAINDER, "its turn to leave", ("lets-out#A#4", "lets-out#A#5", "lets-out#A#6")),
    "lets-out-queue": Held(
        WaitKind.REMAINDER, "its turn to leave", ("lets-out-queue#A#1", "lets-out-queue#A#4", "lets-out-queue#A#2")
    ),
    "other-waits": Held(WaitKind.DEADLINE, "sequence:1", ("other-waits#A#2", "other-waits#A#9")),
}
"""In both partitions, told by hand."""

RESTING = {
    **dict.fromkeys(IDLE[:8], 3),
    **dict.fromkeys(IDLE[8:], 2),
    "Bäcker|söhne/€ 1": 2,
    "two-flows": 5,
    "given-up": 8,
    "dead-end": 4,
    "late": 4,
    "other-idle": 3,
    "released": 10,
}
"""Those in which nothing waits, and the number that each expects next, told by hand."""

OTHERS = {"other-waits", "other-idle", "released"}
"""Those of the second partition."""

LEAVES = {
    P0: [
        (33, "late#A#1", None, True),
        (34, "late#A#2", None, True),
        (35, "dead-letter", None, False),
        (36, "lets-out#A#1", None, False),
        (37, "lets-out#A#2", None, False),
        (38, "lets-out#A#3", None, False),
    ],
    P1: [
        (5, "released#A#2", "sequence:1", False),
        (6, "released#A#4", "sequence:3", False),
        (7, "released#A#9", "sequence:5", False),
    ],
}
"""What is pending: its number, which envelope it tells of, what was missing, whether it is late. Told by hand."""


TOLD_AT_LAST = {
    **{unit: [1, 2] for unit in IDLE[:8]},
    **{unit: [1] for unit in IDLE[8:]},
    "Bäcker|söhne/€ 1": [1],
    "two-flows": [1, 2, 3, 4],
    "given-up": [1, 5, 3],
    "dead-end": [1],
    "late": [3, 1, 2],
    "waits": [1, 2, 3, 4, 5],
    "waits-for-a-server": [1, 2],
    "tries-again": [1, 2],
    "tries-again-forced": [3, 5],
    "lets-out": [1, 2, 3, 4, 5, 6],
    "lets-out-queue": [1, 2, 3, 4],
    "other-idle": [1, 2],
    "other-waits": [1, 2, 9],
    "released": [2, 4, 9],
}
INCOMPLETE_AT_LAST = {
    "given-up#A#5": "sequence:2",
    "late#A#3": "sequence:1",
    "tries-again-forced#B#3": "sequence:1",
    "tries-again-forced#B#5": "sequence:4",
    "released#A#2": "sequence:1",
    "released#A#4": "sequence:3",
    "released#A#9": "sequence:5",
    "other-waits#A#9": "sequence:3",
}
POSSIBLY_DUPLICATE_AT_LAST = {"idle-8#A#1"}
"""What was read first after the positions had been lost. It lay there when they were missed."""
