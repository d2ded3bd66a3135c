"""Has the controller unregister a broker that died, before its successor starts.

Seen in Kafka 4.3.1: the successor of a broker that was killed goes by its predecessor's registration at first, and leads what
that led. It sends the ends of decided transactions to itself, where nobody listens yet; then the registration runs out, its
partitions have no leader, and those ends are dropped for good, as of topics that were deleted. The positions that such a
transaction carried stay undecided for ever. Where partitions have copies, another broker leads them by then.
"""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from time import monotonic, sleep

from servers.process import Process

_ALONE = {"process.roles": "controller", "broker.session.timeout.ms": "200", "broker.heartbeat.interval.ms": "50"}
_OF_BROKERS = ("advertised.listeners", "inter.broker.listener.name")
_LED, _UNREGISTERED = "Becoming the active controller", "Replayed BrokerRegistrationChangeRecord"
_LED_SECONDS, _UNREGISTERED_SECONDS, _END_SECONDS = 120, 15, 30
_LOOK_SECONDS = 0.02


def controller_properties(properties: Mapping[str, str]) -> dict[str, str]:
    """Of the same node, as a controller alone that gives brokers no time."""
    listener = next(each for each in properties["listeners"].split(",") if each.startswith("CONTROLLER:"))
    kept = {name: value for name, value in properties.items() if name not in _OF_BROKERS}
    return {**kept, **_ALONE, "listeners": listener}


def unregister_predecessor(command: Sequence[str], log: Path, note: Path) -> None:
    """Runs the controller by itself until it has. `note` names its process meanwhile.

    One that is unregistered already, by a start that died, is waited for in vain for some seconds. Whatever goes wrong shows when
    the broker itself does not come up.
    """
    begin = log.stat().st_size
    controller = Process.launch(command, log, os.environ)
    controller.write(note)
    try:
        led = _find(_LED, controller, log, begin, _LED_SECONDS)
        if led is not None:
            _find(_UNREGISTERED, controller, log, led, _UNREGISTERED_SECONDS)
    finally:
        controller.terminate()  # In good order: what it says that it does is not yet in its log.
        controller.finish(_END_SECONDS)


def _find(words: str, controller: Process, log: Path, begin: int, seconds: float) -> int | None:
    """Where the words begin behind `begin`, once they were said."""
    until = monotonic() + seconds
    while controller.is_running and monotonic() < until:
        with log.open("rb") as file:
            file.seek(begin)
            if (at := file.read().find(words.encode())) >= 0:
                return begin + at
        sleep(_LOOK_SECONDS)
    return None
