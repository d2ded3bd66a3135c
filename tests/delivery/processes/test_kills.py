"""Delivery workers as processes, on a real receiver and each database, killed under load."""

import json
from collections.abc import Callable
from pathlib import Path
from random import Random
from time import sleep
from typing import Any

import pytest
from harness.delivering import Delivering
from harness.waiting import wait_until

from delivery.jobs import JobState
from servers.postgresql.server import PostgresqlServer
from servers.receiver.behaviour import Behaviour
from servers.receiver.check import compare
from servers.receiver.server import ReceiverServer

pytestmark = pytest.mark.slow
UNITS, PER_UNIT = 150, 8
RECEIVER = """
    steps = announce-verify-deliver, verify { delay = 50ms, attempts = 200 }
    timeout = 1s, rate = "150/s", retry { first = 50ms, attempts = 100 }
    suspension { probe = 300ms, when { status = [503], body = "currently suspended" } }
    limit.when.body = "connections allowed", reject.when.status = [422]
"""


@pytest.fixture(params=["sqlite", "postgresql"])
def postgresql_server(request: pytest.FixtureRequest, own_server: Callable[..., Any]) -> PostgresqlServer | None:
    """A server of the test's own, for it is killed; None: the ledger is SQLite."""
    return own_server(PostgresqlServer).start() if request.param == "postgresql" else None


def test_nothing_is_lost_doubled_or_overtaken_whatever_is_killed(
    tmp_path: Path, own_server: Callable[..., Any], postgresql_server: PostgresqlServer | None
) -> None:
    behaviour = Behaviour(announcing=True, digest_seconds=0.1, connections=15, rejects=0.05, breaks=0.01, faults=0.02)
    receiver = own_server(ReceiverServer, behaviour).start()
    it = Delivering(tmp_path, receiver.url, postgresql_server and postgresql_server.url, RECEIVER, UNITS, PER_UNIT)
    chance = Random(7)
    try:
        it.start_job("j")
        for _ in range(2):
            it.start_worker()
        kills, has_slept = 0, False
        while it.job("j").state is not JobState.COMPLETE:
            sleep(chance.uniform(0.3, 1.2))
            if kills < 6:
                it.workers[kills].kill()
                kills += 1
                it.start_worker()
            if kills == 5 and postgresql_server is not None:
                postgresql_server.kill()
                sleep(0.5)
                postgresql_server.start()
            if kills == 2:
                receiver.kill()
                receiver.start()
            if kills == 3 and not has_slept:
                receiver.behave(asleep=True)
                wait_until(lambda: not it.gate().is_open, "the gate shuts")
                receiver.behave(asleep=False)
                has_slept = True
            assert all(each.poll() is None for each in it.workers[kills:]), (tmp_path / "log").read_text()[-3_000:]
        job, found = it.job("j"), compare(receiver.data, it.pairs)
        assert found.is_good, found.table()
        assert (job.expected, job.processed + job.rejected, job.failed, job.open) == (len(it.pairs), len(it.pairs), 0, 0)
        assert found.taken == job.processed
        assert kills == 6
        assert job.retries.suspension > 0
        events = wait_until(lambda: (tmp_path / "out" / "job-events.jsonl").read_text().splitlines(), "the event is published")
        assert [json.loads(each)["processed"] for each in events] == [job.processed]
        last = it.workers[-1]
        last.terminate()
        assert last.wait(30) == 0
    finally:
        it.close()
