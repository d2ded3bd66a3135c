"""A worker from queues to queues: exactly once, whatever is killed, and numbers that never begin anew."""

import json
import random
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from harness.driving import wire
from harness.nightly import SEED, at_night
from harness.waiting import wait_until
from proton import ConnectionException, Timeout

from guardian.headers import POSSIBLE_DUPLICATE
from guardian.ports import Channel
from notification_service.connectors.jms.sink import JmsSink
from notification_service.connectors.jms.source import JmsSource
from resequencer.record import Record
from servers.artemis import ArtemisServer, ArtemisSettings
from tests.notification_service.connectors.jms.stage import Queues, message
from tests.notification_service.connectors.jms.worker import WINDOW, Died, JmsWorker

pytestmark = pytest.mark.slow

OwnServer = Callable[..., Any]
UNITS, EACH = 60, 8


def shuffled(chance: random.Random, units: range) -> list[tuple[str, int]]:
    """Return envelopes, each twice in a row now and then, out of order."""
    envelopes = [(f"U{unit}", sequence) for unit in units for sequence in range(1, EACH + 1)]
    chance.shuffle(envelopes)
    return [each for one in envelopes for each in [one] * (2 if chance.random() < 0.05 else 1)]


def send(queues: Queues, envelopes: list[tuple[str, int]]) -> None:
    queues.send(
        *[message(wire(unit, "A", sequence, f"{unit}-{sequence}"), part=int(unit[1:]) % 2) for unit, sequence in envelopes]
    )


def send_at_least_once(queues: Queues, envelopes: list[tuple[str, int]]) -> None:
    """Send as a producer does whose broker may be lost in the midst: all again, until it has answered to all."""

    def are_sent() -> bool:
        try:
            send(queues, envelopes)
        except (ConnectionException, Timeout):
            return False
        return True

    wait_until(are_sent, "the broker has taken them")


def sequences(records: list[Record]) -> dict[str, list[int]]:
    """Return the sequences that each unit was notified of, in order."""
    found: dict[str, list[int]] = defaultdict(list)
    for each in records:
        found[dict(each.headers)["notification-id"].decode().split("-")[0]].append(json.loads(each.value)["sequence"])
    return found


def is_right(queues: Queues, units: int) -> None:
    found = sequences(queues.left(Channel.NOTIFICATIONS, units * EACH))
    assert found == {f"U{unit}": list(range(1, EACH + 1)) for unit in range(units)}
    assert queues.left(Channel.DEAD_LETTERS) == []
    assert queues.browse(queues.events) == []


def test_a_worker_puts_messages_in_order_and_each_leaves_once(artemis: ArtemisServer, tmp_path: Path) -> None:
    queues = Queues.fresh(artemis)
    send(queues, shuffled(random.Random(1), range(UNITS)))
    worker = JmsWorker(queues, tmp_path / "storage")
    wait_until(lambda: (worker.run_once(), worker.is_through)[1], "everything", look_seconds=0)
    worker.close()
    is_right(queues, UNITS)


def test_a_message_without_an_id_becomes_a_dead_letter(artemis: ArtemisServer, tmp_path: Path) -> None:
    queues = Queues.fresh(artemis)
    queues.send(message(wire("U0", "A", 1, "U0-1"), id_=None), message(wire("U0", "A", 1, "U0-1")))
    worker = JmsWorker(queues, tmp_path / "storage")
    wait_until(lambda: (worker.run_once(), worker.is_through)[1], "everything", look_seconds=0)
    worker.close()
    (letter,) = queues.left(Channel.DEAD_LETTERS)
    headers = dict(letter.headers)
    assert headers["dead-letter-reason"] == b"undecodable"
    assert b"no message-id" in headers["dead-letter-error"]
    assert letter.value == wire("U0", "A", 1, "U0-1")
    assert len(queues.left(Channel.NOTIFICATIONS)) == 1


@pytest.mark.parametrize("seed", [0, *at_night("brokers", SEED)])
def test_workers_that_die_at_any_call_leave_each_notification_once(
    artemis: ArtemisServer, tmp_path: Path, monkeypatch, seed: int
) -> None:
    queues, chance = Queues.fresh(artemis), random.Random(seed)
    places = [(JmsSink, "publish"), (JmsSource, "acknowledge"), (JmsSource, "poll"), (JmsSource, "seek"), (JmsSink, "position")]
    for kind, name in places:
        monkeypatch.setattr(kind, name, deadly(getattr(kind, name), chance))
    deaths = units = 0
    while deaths <= 3:
        send(queues, shuffled(chance, range(units, units + UNITS)))
        units += UNITS
        is_through = False
        while not is_through:
            worker = JmsWorker(queues, tmp_path / "storage")
            try:
                wait_until(lambda worker=worker: (worker.run_once(), worker.is_through)[1], "everything", look_seconds=0)
                is_through = True
            except Died:
                deaths += 1
            finally:
                worker.close()
    is_right(queues, units)


@pytest.mark.parametrize("seed", at_night("brokers", SEED, SEED + 1))
def test_a_broker_that_is_killed_again_and_again_costs_nothing_and_doubles_nothing(
    struck_server: OwnServer, tmp_path: Path, seed: int
) -> None:
    server, chance = struck_server(ArtemisServer, ArtemisSettings(idle_ms=2_000)), random.Random(seed)
    queues = Queues.fresh(server)
    envelopes = shuffled(chance, range(4 * UNITS))
    worker = JmsWorker(queues, tmp_path / "storage")
    for part in range(4):
        send_at_least_once(queues, envelopes[part::4])
        cycles = chance.randrange(1, 8)
        for _ in range(cycles):
            worker.run_once()
        strike = Thread(target=(lambda: (server.kill(), server.start())) if part % 2 else (lambda: frozen(server)))
        strike.start()
        while strike.is_alive():
            worker.run_once()
        strike.join()
    wait_until(lambda: (worker.run_once(), worker.is_through)[1], "everything", look_seconds=0)
    worker.close()
    is_right(queues, 4 * UNITS)


def test_after_the_storage_has_forgotten_numbers_go_on_a_window_later_and_output_is_marked(
    artemis: ArtemisServer, tmp_path: Path
) -> None:
    queues = Queues.fresh(artemis)
    send(queues, [(f"U{unit}", 1) for unit in range(0, 40, 2)])
    worker = JmsWorker(queues, tmp_path / "storage")
    wait_until(lambda: (worker.run_once(), worker.is_through)[1], "everything", look_seconds=0)
    worker.close()
    reached = queues.partitions()[0]
    send(queues, [(f"U{unit}", 1) for unit in range(100, 140, 2)])
    again = JmsWorker(queues, tmp_path / "another")
    wait_until(lambda: (again.run_once(), again.is_through)[1], "everything", look_seconds=0)
    assert again.cycle.partitions.owned[reached].read_to == 40 + WINDOW
    again.close()
    assert len(queues.left(Channel.NOTIFICATIONS)) == 40
    marks = [POSSIBLE_DUPLICATE in dict(each.headers) for each in queues.left(Channel.NOTIFICATIONS)]
    assert marks == [False] * 20 + [True] * 20


def deadly(real: Callable[..., Any], chance: random.Random) -> Callable[..., Any]:
    """The process dies before or after one of eight calls."""

    def call(*arguments: Any, **named: Any) -> Any:
        moment = chance.randrange(16)
        if moment == 0:
            raise Died
        answer = real(*arguments, **named)
        if moment == 1:
            raise Died
        return answer

    return call


def frozen(server: ArtemisServer) -> None:
    server.pause()
    Thread(target=server.is_ready).run()
    server.resume()
