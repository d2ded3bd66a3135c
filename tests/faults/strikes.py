"""The strikes against a service and its servers, by real means. Each returns when everything that it stopped is back.

What waits here is the strike: how long something stays away, slow or silent is drawn by chance.
"""

import os
import signal
from collections import defaultdict, deque
from collections.abc import Callable, Mapping
from random import Random
from time import monotonic

from harness.processes.operated_daemon import Daemon
from harness.waiting import pause_at_random, wait_until

from servers.server import Server
from tests.faults.stage import LONGEST_WAIT_SECONDS, SESSION_SECONDS, Stage

Strike = Callable[[Stage, Random], None]

_MAX_EXITS, _WITHIN_SECONDS = 8, 61
"""Fewer exits than a supervisor tolerates: it gives up at the tenth exit in a slot within a minute."""

_exits: defaultdict[tuple[str, int], deque[float]] = defaultdict(lambda: deque(maxlen=_MAX_EXITS))


def kill_worker(stage: Stage, chance: Random) -> None:
    """Kill a worker, perhaps one that was just started."""
    slot, now = chance.randrange(2), monotonic()
    recent = _exits[str(stage.directory), slot]
    if len(recent) == _MAX_EXITS and now - recent[0] < _WITHIN_SECONDS:
        slot = 1 - slot
        recent = _exits[str(stage.directory), slot]
    if len(recent) == _MAX_EXITS:
        wait_until(lambda: monotonic() >= recent[0] + _WITHIN_SECONDS, "another exit is tolerated")
    send(stage.daemon, slot, signal.SIGKILL)
    recent.append(monotonic())


def pause_worker(stage: Stage, chance: Random) -> None:
    """Pause a worker for longer than its session: the group reassigns its partitions, and then the worker continues."""
    slot = chance.randrange(2)
    worker = send(stage.daemon, slot, signal.SIGSTOP)
    pause_at_random(chance, SESSION_SECONDS + 1, SESSION_SECONDS + 5)
    os.kill(worker, signal.SIGCONT)


def kill_broker(stage: Stage, chance: Random) -> None:
    kill(stage.broker, chance)


def pause_broker(stage: Stage, chance: Random) -> None:
    _pause(stage.broker, chance, 15)


def kill_storage(stage: Stage, chance: Random) -> None:
    kill(stage.storage, chance)


def kill_storage_and_worker(stage: Stage, chance: Random) -> None:
    """Kill a worker and the storage. The worker that takes over finds out what the storage has forgotten."""
    kill_worker(stage, chance)
    kill_storage(stage, chance)


def pause_storage(stage: Stage, chance: Random) -> None:
    _pause(stage.storage, chance, 10)


def join_and_leave(stage: Stage, chance: Random) -> None:
    """Cause two rebalances: another service joins, and then stops normally or dies with all its workers."""
    other = stage.another()
    other.start()
    pause_at_random(chance, 0, 4)
    if chance.random() < 0.5:
        for slot in range(2):
            send(other, slot, signal.SIGKILL)
        os.kill(other.supervisor, signal.SIGKILL)
    else:
        stopped = other.service.verb("stop", seconds=LONGEST_WAIT_SECONDS)
        assert stopped.returncode == 0, stopped.stderr


def cut_connections(stage: Stage, chance: Random) -> None:
    chance.choice(stage.relays).cut()


def half_close_connections(stage: Stage, chance: Random) -> None:
    chance.choice(stage.relays).half_close()


def slow_down(stage: Stage, chance: Random) -> None:
    relay = chance.choice(stage.relays)
    relay.slow_down(chance.uniform(0.01, 0.3))
    pause_at_random(chance, 2, 6)
    relay.mend()


def fall_silent(stage: Stage, chance: Random) -> None:
    """Let a connection fall silent. The data that was sent meanwhile is lost, or comes late."""
    relay = chance.choice(stage.relays)
    relay.fall_silent()
    pause_at_random(chance, 1, 12)
    if chance.random() < 0.5:
        relay.cut()
    relay.mend()


NETWORK: Mapping[str, Strike] = {
    "connections reset": cut_connections,
    "connections half closed": half_close_connections,
    "slow network": slow_down,
    "silent network": fall_silent,
}


def send(daemon: Daemon, slot: int, number: signal.Signals, verb: str = "run") -> int:
    """Send the signal to the worker in the slot, as soon as there is one. Return its process id."""
    while True:
        worker = wait_until(lambda: daemon.find_worker(slot, verb), f"a worker in slot {slot}", LONGEST_WAIT_SECONDS)
        assert worker is not None
        try:
            os.kill(worker, number)
        except ProcessLookupError:
            continue
        return worker


def kill(server: Server, chance: Random) -> None:
    """Kill a server, and start it again after a while."""
    server.kill()
    pause_at_random(chance, 0, 2)
    server.start(LONGEST_WAIT_SECONDS)


def _pause(server: Server, chance: Random, most: float) -> None:
    server.pause()
    pause_at_random(chance, 1, most)
    server.resume()
