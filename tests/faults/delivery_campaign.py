"""A campaign on delivery: while a job is delivered, its workers, its ledger and its receiver are struck."""

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from random import Random
from subprocess import Popen
from time import monotonic
from typing import TypeVar

from harness.delivering import Delivering
from harness.fault_table import DeliveryRow
from harness.waiting import pause_at_random, wait_until

from notification_service.delivery.core.jobs import Job, JobState
from notification_service.simulator.receiver.check import compare
from servers.postgresql import PostgresqlServer
from servers.receiver import ReceiverServer

PER_UNIT = 8
PROBE_MS = 300
LEASE_SECONDS = 12
"""Of a call with this receiver's time limit, which is a second."""

RECEIVER = f"""
    steps = announce-verify-deliver, verify {{ delay = 50ms, attempts = 200 }}
    timeout = 1s, rate = "150/s", retry {{ first = 50ms, most = 2s, attempts = 100 }}
    suspension {{ probe = {PROBE_MS}ms, most = {PROBE_MS}ms, when {{ status = [503], body = "currently suspended" }} }}
    limit.when.body = "connections allowed", reject.when.status = [422]
"""
_INTERRUPTED = 100
"""So many calls at most are under way in two workers, or begin and get no answer while the receiver stands still."""

_LONGEST_WAIT_SECONDS = 120
_T = TypeVar("_T")


class DeliveryCampaign:
    """Two delivery workers and a job of `units` units. `postgresql` is None for a ledger in SQLite."""

    def __init__(
        self, fault: str, directory: Path, receiver: ReceiverServer, postgresql: PostgresqlServer | None, units: int, seed: int
    ) -> None:
        self.fault, self.receiver, self.postgresql = fault, receiver, postgresql
        self.it = Delivering(directory, receiver.url, postgresql and postgresql.url, RECEIVER, units, PER_UNIT)
        self._seed = seed
        self._times = 0
        self._repeated = 0
        self._began_at = monotonic()

    def begin(self) -> None:
        self.it.start_job("j")
        for _ in range(2):
            self.it.start_worker()
        self.wait_for(lambda: self.job().processed > 0, "the first row is delivered")

    def strike(self, strike: "Strike", chance: Random) -> bool:
        """Strike after a moment, and return True; False: the job has ended, and there was nothing to strike."""
        pause_at_random(chance, 0.2, 1.2)
        if self.job().state is JobState.COMPLETE:
            return False
        began_at = monotonic()
        strike(self, chance)
        self._times += 1
        print(f"{began_at - self._began_at:7.1f} s  {strike.__name__} took {monotonic() - began_at:.1f} s", flush=True)
        return True

    def drain(self) -> None:
        self.wait_for(lambda: self.job().state is JobState.COMPLETE, "the job is complete", 600)

    def finish(self) -> DeliveryRow:
        """Drain, and wait until the event of the job's end is there. Record the returned row before `judge`, which may fail."""
        self.drain()
        self.note_repeated()
        self.events = self.wait_for(lambda: _lines(self.it.directory / "out" / "job-events.jsonl"), "the event is published")
        self.comparison = compare(self.receiver.data, self.it.pairs)
        job, found = self.job(), self.comparison
        return DeliveryRow(
            fault=self.fault,
            times=self._times,
            ledger="sqlite" if self.postgresql is None else "postgresql",
            notifications=len(self.it.pairs),
            processed=job.processed,
            rejected=job.rejected,
            failed=job.failed,
            lost=len(found.lost),
            doubled=len(found.doubled),
            out_of_order=len(found.misplaced),
            repeated=self._repeated,
            suspensions=job.retries.suspension,
            back_offs=job.retries.back_off,
            refused_results=job.refused_results,
            events=len(self.events),
            seed=self._seed,
        )

    def judge(self, row: DeliveryRow) -> None:
        """Check that nothing is wrong, that the counts add up, and that the job has ended once."""
        job = self.job()
        assert self.comparison.is_good, self.comparison.table()
        assert (job.expected, job.read, job.duplicates, job.open) == (row.notifications, row.notifications, 0, 0)
        assert (row.processed + row.rejected, row.failed) == (row.notifications, 0)
        assert self.comparison.taken == row.processed
        # A strike makes needless at most the calls that it interrupts.
        assert len(self.comparison.needless) <= self._times * _INTERRUPTED, self.comparison.table()
        (event,) = self.events
        assert (event["number"], event["job"], event["run"], event["processed"]) == (1, "j", 1, row.processed)
        running = [each for each in self.it.workers if each.poll() is None]
        assert len(running) == 2, self._last_words()
        for each in running:
            each.terminate()
            assert each.wait(_LONGEST_WAIT_SECONDS) == 0

    def job(self) -> Job:
        return self.it.job("j")

    def note_repeated(self) -> None:
        """Count the repeated calls before the receiver dies, for it forgets them."""
        self._repeated += self.receiver.counts()["repeated"]

    def wait_for(self, question: Callable[[], _T], what: str, seconds: float = _LONGEST_WAIT_SECONDS) -> _T:
        try:
            return wait_until(question, what, seconds, 0.1)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self._last_words()}") from error

    def close(self) -> None:
        self.it.close()

    def _last_words(self) -> str:
        return (self.it.directory / "log").read_text(errors="replace")[-6_000:]


Strike = Callable[[DeliveryCampaign, Random], None]


def kill_worker(campaign: DeliveryCampaign, chance: Random) -> None:
    _running_worker(campaign, chance).kill()
    campaign.it.start_worker()


def pause_worker(campaign: DeliveryCampaign, chance: Random) -> None:
    """Pause a worker for longer than its leases: the other delivers what it was about to, and then it continues."""
    worker = _running_worker(campaign, chance)
    os.kill(worker.pid, signal.SIGSTOP)
    pause_at_random(chance, LEASE_SECONDS + 0.5, LEASE_SECONDS + 3)
    os.kill(worker.pid, signal.SIGCONT)


def kill_ledger(campaign: DeliveryCampaign, chance: Random) -> None:
    server = _postgresql(campaign)
    server.kill()
    pause_at_random(chance, 0, 2)
    server.start()


def pause_ledger(campaign: DeliveryCampaign, chance: Random) -> None:
    server = _postgresql(campaign)
    server.pause()
    pause_at_random(chance, 1, 5)
    server.resume()


def kill_receiver(campaign: DeliveryCampaign, chance: Random) -> None:
    campaign.note_repeated()
    campaign.receiver.kill()
    pause_at_random(chance, 0, 2)
    campaign.receiver.start()


def pause_receiver(campaign: DeliveryCampaign, chance: Random) -> None:
    """Pause it for longer than a call may take."""
    campaign.receiver.pause()
    pause_at_random(chance, 1.5, 4)
    campaign.receiver.resume()


def sleep_receiver(campaign: DeliveryCampaign, chance: Random) -> None:
    _behave(campaign, chance, "asleep")


def revoke_token(campaign: DeliveryCampaign, chance: Random) -> None:
    _behave(campaign, chance, "unauthorized")


def forget_units(campaign: DeliveryCampaign, chance: Random) -> None:
    """For a while the receiver forgets what was announced before."""
    campaign.receiver.behave(forgets=True)
    pause_at_random(chance, 0.5, 1.5)
    campaign.receiver.behave(forgets=False)


def _behave(campaign: DeliveryCampaign, chance: Random, trouble: str) -> None:
    campaign.receiver.behave(**{trouble: True})
    try:
        campaign.wait_for(
            lambda: not campaign.it.gate().is_open or campaign.job().state is JobState.COMPLETE, "the gate shuts or all is done"
        )
        pause_at_random(chance, 0.5, 2)
    finally:
        campaign.receiver.behave(**{trouble: False})


def _running_worker(campaign: DeliveryCampaign, chance: Random) -> Popen[bytes]:
    return chance.choice([each for each in campaign.it.workers if each.poll() is None])


def _postgresql(campaign: DeliveryCampaign) -> PostgresqlServer:
    assert campaign.postgresql is not None
    return campaign.postgresql


def _lines(path: Path) -> list[dict[str, object]]:
    return [json.loads(each) for each in path.read_text().splitlines()] if path.exists() else []
