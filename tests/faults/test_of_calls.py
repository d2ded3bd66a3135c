"""Workers that are killed while the calls of a handler that waits are under way: what was called leaves once and in order.

The target type takes its time. It fails, hangs and misses a server, and it writes a log of its own calls, one for each worker.
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from random import Random

import pytest
from harness.nightly import SEED
from harness.processes.operated_service import NOTIFICATION, RESEQUENCER, OperatedService
from harness.waiting import DEADLINE_SECONDS, pause_at_random, wait_until

from guardian.headers import NOTIFICATION_ID, POSSIBLE_DUPLICATE, own_texts
from tests.faults.conftest import Opens
from tests.faults.stage import LONGEST_WAIT_SECONDS, Stage
from tests.faults.strikes import kill_worker

pytestmark = [pytest.mark.slow, pytest.mark.faults(all=10, night=10)]

TARGET = '''
import asyncio
import json
import os
import random
import time
from collections import Counter
from pathlib import Path
from zlib import crc32

from notification_service.api import DependencyUnavailable, TransientError

Path("calls").mkdir(exist_ok=True)
log = os.open(f"calls/{os.getpid()}", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
tries = Counter()
began = []


def note(what, name):
    os.write(log, f"{what} {name}\\n".encode())


def seconds_of(name):
    """Return how long the call takes, or raise. The first two calls in a worker may fail or hang, so that attempts suffice."""
    began.append(time.monotonic())
    tries[name] += 1
    if crc32(name.encode()) % 5 == 0 and began[-1] - began[0] < 1:
        raise DependencyUnavailable("ledger")
    chance = random.Random(f"{name} {tries[name]}")
    kind = chance.random() if tries[name] <= 2 else 1
    if kind < 0.1:
        raise TransientError("not yet")
    return 1.2 if kind < 0.2 else chance.uniform(0.005, 0.2)


def ended(error):
    return type(error).__name__ if error else "answered"


async def beside(produced):
    name, error = produced["report"]["CstmrPmtStsRpt"]["GrpHdr"]["MsgId"], None
    note("called", name)
    try:
        await asyncio.sleep(0.005)
        await asyncio.sleep(seconds_of(name))
        return json.dumps(produced["report"]).encode()
    except BaseException as caught:
        error = caught
        raise
    finally:
        note(ended(error), name)


def in_threads(produced):
    name, error = produced["report"]["CstmrPmtStsRpt"]["GrpHdr"]["MsgId"], None
    note("called", name)
    try:
        time.sleep(seconds_of(name))
        return json.dumps(produced["report"]).encode()
    except BaseException as caught:
        error = caught
        raise
    finally:
        note(ended(error), name)
'''
SETTINGS = (
    f"{RESEQUENCER}.processing-timeout=600ms",
    f"{RESEQUENCER}.max-attempts=100",
    f"{RESEQUENCER}.backoff-factor=1",
    # Longer than a strike can delay an envelope. With none, units that are rebuilt may wait so long without any output.
    f"{RESEQUENCER}.stash-timeout=90s",
    f"{RESEQUENCER}.strategy=SEQUENCE",
)
CALLED = {
    "beside": (f"{NOTIFICATION}.target-type=waiting_target:beside",),
    "in threads": (f"{NOTIFICATION}.target-type=waiting_target:in_threads", f"{RESEQUENCER}.handling-threads=16"),
}
AS_A_REPORT = ("--set", f"{NOTIFICATION}.target-type=report")
"""What `verify` expects: the target type sends the report as it is."""


class CallLogs:
    """What the target type wrote about its calls in the workers of a service."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(exist_ok=True, parents=True)
        (directory / "waiting_target.py").write_text(TARGET, encoding="utf-8")
        self._directory = directory / "calls"

    def calls_of(self, worker: int | None) -> list[list[str]]:
        """Return what was written, without a last line that is incomplete."""
        file = self._directory / str(worker)
        return [line.split() for line in file.read_text(encoding="utf-8").split("\n")[:-1]] if file.exists() else []

    def under_way(self, worker: int | None) -> int:
        """Count the calls that have begun and not ended. Of a worker that was killed: those in whose midst it was."""
        return sum(1 if what == "called" else -1 for what, _ in self.calls_of(worker))

    def judge(self, units: Mapping[str, str], kinds: Iterable[str]) -> None:
        """Check that each notification was answered by a call, and that no worker called for a unit twice at the same time."""
        ends: Counter[str] = Counter()
        answered: set[str] = set()
        for file in self._directory.iterdir():
            busy: set[str] = set()
            for what, name in self.calls_of(int(file.name)):
                unit = units[name]
                if what == "called":
                    assert unit not in busy, f"two calls of {unit} at the same time in worker {file.name}: {name}"
                    busy.add(unit)
                else:
                    busy.remove(unit)
                    ends[what] += 1
                    answered |= {name} if what == "answered" else set()
        print(f"calls ended: {dict(ends)}", flush=True)
        assert not units.keys() - answered
        assert ends.keys() >= set(kinds)


def kinds_of(way: str) -> list[str]:
    """Return how calls end, all of which must have happened. The late answer of a thread is an answer."""
    return ["answered", "TransientError", "DependencyUnavailable", *(["CancelledError"] if way == "beside" else [])]


@pytest.mark.parametrize(
    ("storage", "way"),
    [("redis", "beside"), ("redis", "in threads"), ("infinispan", "beside"), ("none", "beside")],
)
def test_workers_that_are_killed_in_the_midst_of_calls_lose_double_and_misplace_nothing(
    campaign: Opens, times: int, chance: Random, tmp_path: Path, storage: str, way: str
) -> None:
    logs = CallLogs(tmp_path / "first")

    def kill_amid_calls(stage: Stage, chance: Random) -> None:
        """Kill workers until one leaves calls that have not ended."""
        amid = 0
        while not amid:
            wait_until(lambda: all(map(logs.under_way, workers_of(stage))), "each worker calls", LONGEST_WAIT_SECONDS)
            amid = logs.under_way(ended_worker(stage, chance))
        print(f"killed amid {amid} calls", flush=True)

    with campaign(f"kill -9 amid calls {way}", storage, *SETTINGS, *CALLED[way]) as under_way:
        under_way.judged_as = AS_A_REPORT
        for _ in range(times):
            under_way.strike(kill_amid_calls, chance)
    sent = under_way.stage.notifications()
    logs.judge({own_texts(each.headers)[NOTIFICATION_ID]: each.key.decode() for each in sent}, kinds_of(way))


def ended_worker(stage: Stage, chance: Random) -> int | None:
    """Kill a worker, and wait for its end."""
    before = workers_of(stage)
    kill_worker(stage, chance)
    wait_until(lambda: workers_of(stage) != before, "it has ended", LONGEST_WAIT_SECONDS)
    (ended,) = {*before} - {*workers_of(stage)}
    return ended


def workers_of(stage: Stage) -> list[int | None]:
    return [stage.daemon.find_worker(slot) for slot in range(2)]


@pytest.fixture
def service(tmp_path: Path) -> Iterator[OperatedService]:
    """On files."""
    made = OperatedService(tmp_path, *SETTINGS)
    yield made
    made.clear_away()


@pytest.mark.parametrize(("storage", "way"), [("embedded", "beside"), ("embedded", "in threads"), ("none", "beside")])
def test_a_worker_on_files_that_is_killed_in_the_midst_of_calls_loses_nothing(
    service: OperatedService, times: int, chance: Random, storage: str, way: str
) -> None:
    """With the storage it also doubles and misplaces nothing. With none, what is read again may leave again (docs/design.md)."""
    logs = CallLogs(service.directory)
    settings = (f"{RESEQUENCER}.storage-type={storage}", *CALLED[way])
    print(f"SEARCH_SEED={SEED}: {storage}, {way}")
    kinds = ("--losses", "0", "--late", "0", *(("--duplicates", "0") if storage == "none" else ()))
    feeder = service.begin_verb("simulate", "--units", "250", "--rate", "60/s", "--seed", str(SEED), *kinds)
    kills = 0
    while kills < times:
        service.start(*settings)
        worker = service.process.pid if service.process else None
        wait_until(lambda worker=worker: logs.under_way(worker), "it calls")
        pause_at_random(chance, 0, 1)
        service.kill()
        amid = logs.under_way(worker)
        print(f"killed amid {amid} calls", flush=True)
        kills += amid > 0
    service.start(*settings)
    assert feeder.wait(DEADLINE_SECONDS) == 0
    service.wait_until_idle()
    assert service.stop() == 0
    verdict = json.loads(service.verb("verify", "--json", *AS_A_REPORT).stdout)
    assert verdict["counts"]["lost"] == 0
    sent = service.notifications()
    logs.judge({each["headers"]["notification-id"]: each["key"] for each in sent}, kinds_of(way))
    if storage != "none":
        assert verdict["good"], (verdict["counts"], verdict["examples"])
        assert not any(POSSIBLE_DUPLICATE in each["headers"] for each in sent)
