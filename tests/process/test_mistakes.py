"""User's code that raises something else than an Exception, and bugs of our own, in a real worker: each costs its
envelope only.
"""

from collections.abc import Callable

import pytest
from harness.nightly import at_night
from harness.processes.operated_daemon import Daemon
from harness.processes.operated_service import NOTIFICATION, RESEQUENCER
from harness.waiting import wait_until

from resequencer.notification import notification_id

pytestmark = pytest.mark.slow

TARGET = '''
import asyncio
import json
from pathlib import Path

from notification_service.payments import process_object_handler


class Panic(BaseException):
    """As a Rust extension raises it."""


FOREIGN = {"cancelled": asyncio.CancelledError, "closed": GeneratorExit, "ended": SystemExit, "panic": Panic}
OURS = {"ours": ArithmeticError, "too deep": RecursionError}
TOLD = dict(line.split("=") for line in Path("mistakes").read_text().splitlines())


def report(mapping):
    way = TOLD.get(mapping["report"]["CstmrPmtStsRpt"]["GrpHdr"]["MsgId"])
    if way in FOREIGN:
        raise FOREIGN[way]("said so")
    return json.dumps(mapping["report"]).encode()


right = process_object_handler.encode_report


def encode_report(message_id, *arguments):
    """A mistake of ours, in the midst of our own code."""
    if TOLD.get(message_id) in OURS:
        raise OURS[TOLD[message_id]]("said so")
    return right(message_id, *arguments)


process_object_handler.encode_report = encode_report
'''
MISTAKES = {
    ("uow-1", 1): "cancelled",
    ("uow-2", 2): "closed",
    ("uow-3", 1): "ended",
    ("uow-3", 3): "panic",
    ("uow-4", 2): "ours",
    ("uow-5", 2): "too deep",
    ("uow-5", 4): "cancelled",
}
LEFT = {"uow-1": [2, 3], "uow-2": [1, 3], "uow-3": [2], "uow-4": [1, 3], "uow-5": [3], "uow-6": [1, 2, 3]}


@pytest.mark.parametrize("storage", ["embedded", *at_night("processes", "none")])
def test_each_costs_its_envelope_and_the_worker_goes_on(new_daemon: Callable[..., Daemon], storage: str) -> None:
    settings = (f"{RESEQUENCER}.storage-type={storage}", f"{RESEQUENCER}.stash-timeout=2s")
    daemon = new_daemon(f"{NOTIFICATION}.target-type=mistaken_target:report", *settings)
    service = daemon.service
    (service.directory / "mistaken_target.py").write_text(TARGET, encoding="utf-8")
    rows = [f"{notification_id(unit, f'{unit}#{number}', 0)}={way}" for (unit, number), way in MISTAKES.items()]
    (service.directory / "mistakes").write_text("\n".join(rows))
    for unit in ("uow-1", "uow-3", "uow-6"):
        service.tell(unit, 1, 2, 3)
    for unit in ("uow-2", "uow-4"):
        service.tell(unit, 3, 2, 1)  # Number 2 comes out of the stash.
    service.tell("uow-5", 2, 3, 4)  # The deadline forces number 2.
    daemon.start()
    worker = daemon.worker
    left = sum(map(len, LEFT.values()))
    wait_until(lambda: len(service.dead_letters()) == len(MISTAKES) and len(service.notifications()) == left, "all leave")
    assert {unit: service.sequences(unit) for unit in LEFT} == LEFT
    errors = [each["headers"]["dead-letter-error"] for each in service.dead_letters()]
    for words in ("CancelledError: said so", "GeneratorExit: said so", "SystemExit: said so", "Panic: said so"):
        assert any(words in each for each in errors), (words, errors)
    for words in ("ArithmeticError: said so; the service failed on it", "RecursionError: said so; the service failed on it"):
        assert any(words in each for each in errors), (words, errors)
    assert {each["headers"]["dead-letter-reason"] for each in service.dead_letters()} == {"handler-failed"}
    assert daemon.worker == worker, "it was not started again"
    service.tell("uow-6", 4)
    wait_until(lambda: service.sequences("uow-6") == [1, 2, 3, 4], "it goes on")
