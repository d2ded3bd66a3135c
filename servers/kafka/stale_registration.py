"""Makes the controller unregister a broker that was killed, before its successor starts.

Seen in Kafka 4.3.1: at first, the successor of a killed broker uses its predecessor's registration and leads its partitions.
It sends the ends of decided transactions to itself while its listener is not yet open. Then the registration expires, the
partitions have no leader, and these ends are dropped for good, as if the topics had been deleted. So the positions in such a
transaction stay undecided for ever. In a cluster with replicas another broker leads the partitions by then.
"""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from time import monotonic, sleep

from servers.process import Process

_ALONE = {"process.roles": "controller", "broker.session.timeout.ms": "200", "broker.heartbeat.interval.ms": "50"}
_OF_BROKERS = ("advertised.listeners", "inter.broker.listener.name")
_LED, _UNREGISTERED = "Becoming the active controller", "Replayed BrokerRegistrationChangeRecord"
_LED_SECONDS, _UNREGISTERED_SECONDS, _END_SECONDS = 300, 60, 30
_LOOK_SECONDS = 0.02


def controller_properties(properties: Mapping[str, str]) -> dict[str, str]:
    """Return the properties of the same node as a controller only, on which broker sessions expire almost at once."""
    listener = next(each for each in properties["listeners"].split(",") if each.startswith("CONTROLLER:"))
    kept = {name: value for name, value in properties.items() if name not in _OF_BROKERS}
    return {**kept, **_ALONE, "listeners": listener}


def unregister_predecessor(command: Sequence[str], log: Path, note: Path) -> None:
    """Run the controller alone until it has unregistered the broker. Meanwhile `note` holds its process id.

    If an interrupted start has unregistered the broker already, this waits a minute in vain. A failure here shows when the
    broker itself does not start.
    """
    begin = log.stat().st_size
    controller = Process.launch(command, log, os.environ)
    controller.write(note)
    try:
        led = _find(_LED, controller, log, begin, _LED_SECONDS)
        if led is not None:
            _find(_UNREGISTERED, controller, log, led, _UNREGISTERED_SECONDS)
    finally:
        controller.terminate()  # Not killed: what it has logged may not be in its metadata log yet.
        controller.finish(_END_SECONDS)


def _find(words: str, controller: Process, log: Path, begin: int, seconds: float) -> int | None:
    """Return where the words begin in the log behind `begin`, once they are there; None if they do not come in time."""
    until = monotonic() + seconds
    while controller.is_running and monotonic() < until:
        with log.open("rb") as file:
            file.seek(begin)
            if (at := file.read().find(words.encode())) >= 0:
                return begin + at
        sleep(_LOOK_SECONDS)
    return None
