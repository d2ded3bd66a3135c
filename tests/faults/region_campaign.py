"""A campaign on regions: workers, the brokers of source and sinks, the storage and operators' resets, in turn and under load."""

import json
import os
import re
import signal
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from random import Random
from time import monotonic
from typing import Any
from uuid import uuid4

from harness.fault_table import RegionRow
from harness.processes.operated_daemon import Daemon
from harness.processes.operated_service import NOTIFICATION, OperatedService
from harness.processes.regions import PARTITIONS, RegionStage
from harness.waiting import pause_at_random, wait_until

from guardian.region import RegionState
from notification_service.status.report import State
from notification_service.status.service_report import find_reports
from servers.artemis import ArtemisServer
from servers.kafka import KafkaServer
from servers.server import Server
from tests.faults.campaign import DEVIATIONS, QUIET
from tests.faults.feeder import Feeder
from tests.faults.stage import LONGEST_WAIT_SECONDS
from tests.faults.storages import STORAGES
from tests.faults.strikes import kill, send

_WITHOUT_MARKER = {"mqtt", "xms"}
_CAME_AGAIN = re.compile(r"([\d,]+) messages? came again")
_REFUSED_OR_LATE = (1, 4)
"""The exit codes of a reset that a region refuses, because it is being reset already, or has not yet answered."""


class Region:
    """A service from a source to sinks, and servers of its own. It has two workers, but one where files are part of it."""

    def __init__(
        self,
        own_server: Callable[..., Any],
        directory: Path,
        chance: Random,
        source: str,
        sinks: tuple[str, ...],
        *overrides: str,
    ) -> None:
        self.chance = chance
        self.source, self.sinks = source, sinks
        kinds = {source, *sinks}
        self.workers = 1 if "file" in kinds else 2
        kafka = own_server(KafkaServer) if "kafka" in kinds else None
        artemis = own_server(ArtemisServer) if kinds - {"kafka", "file"} else None
        redis = STORAGES["redis"]
        assert redis.kind is not None
        self.storage: Server = own_server(redis.kind, redis.settings)
        self.brokers: list[Server] = [each for each in (kafka, artemis) if each is not None]
        for each in (*self.brokers, self.storage):
            each.launch()
        for each in (*self.brokers, self.storage):
            each.wait_until_ready(LONGEST_WAIT_SECONDS)
        of_participants = RegionStage(kafka, artemis, lambda name: f"{name}-{uuid4().hex[:12]}").overrides(source, *sinks)
        of_storage = redis.overrides_on(self.storage.ports[redis.port])
        workers = f"{NOTIFICATION}.worker.count={self.workers}"
        self.daemon = Daemon(OperatedService(directory / "region", *of_participants, *of_storage, workers, *overrides))

    @property
    def service(self) -> OperatedService:
        return self.daemon.service

    def start(self) -> None:
        self.daemon.start()

    def verb(self, *arguments: str, seconds: float) -> Any:
        return self.service.verb(*arguments, seconds=seconds)

    def close(self) -> None:
        self.verb("stop", seconds=LONGEST_WAIT_SECONDS)

    def read_to(self) -> int:
        """Return how many records were read, over all partitions. Two workers may report one partition, after a takeover."""
        found: Counter[str] = Counter()
        for report in find_reports(self.service.run_directory):
            found |= Counter({each.partition: each.read_to for each in report.partitions})
        return found.total()

    def is_running(self) -> bool:
        """Whether each worker is ready, and no region is reset, waits for a server, or has failed."""
        reports = find_reports(self.service.run_directory)
        stands = {RegionState.RESETTING, RegionState.WAITING, RegionState.FAILED, RegionState.STOPPED}
        return len(reports) == self.workers and all(
            each.state is State.READY and each.region is not None and each.region.state not in stands for each in reports
        )

    def last_words(self) -> str:
        log = self.daemon.log_file
        log_text = log.read_text(errors="replace")[-6_000:] if log.exists() else ""
        return f"{find_reports(self.service.run_directory)}\n{log_text}"


def kill_worker(region: Region) -> None:
    send(region.daemon, region.chance.randrange(region.workers), signal.SIGKILL)


def pause_worker(region: Region) -> None:
    """Let a worker stand still for longer than its session, so that another one may take over what it has."""
    worker = send(region.daemon, region.chance.randrange(region.workers), signal.SIGSTOP)
    pause_at_random(region.chance, 2, 6)
    os.kill(worker, signal.SIGCONT)


def kill_broker(region: Region) -> None:
    kill(region.chance.choice(region.brokers), region.chance)


def kill_storage(region: Region) -> None:
    kill(region.storage, region.chance)


def reset(region: Region) -> None:
    """Give an operator's order until it is obeyed: a region that is being reset refuses it."""

    def is_obeyed() -> bool:
        done = region.verb("region", "reset", "--force", seconds=LONGEST_WAIT_SECONDS)
        assert done.returncode in (0, *_REFUSED_OR_LATE), done.stderr
        return bool(done.returncode == 0)

    wait_until(is_obeyed, "a reset is obeyed", LONGEST_WAIT_SECONDS)


Strike = Callable[[Region], None]
MIX: tuple[Strike, ...] = (kill_worker, kill_broker, kill_storage, reset, kill_worker, kill_broker, pause_worker)


class RegionCampaign:
    """The strikes of `MIX`, one after the other, each at a random instant: in the midst of the work, or of a recovery."""

    def __init__(self, region: Region, seed: int, *arguments: str) -> None:
        self.region = region
        self._seed = seed
        self._struck: Counter[str] = Counter()
        self._recovery_seconds = 0.0
        self._began_at = monotonic()
        self._feeder = Feeder(region, *QUIET, "--partitions", str(PARTITIONS), *arguments)

    def begin(self) -> None:
        """Wait until the service has read its first records."""
        self._wait_for(lambda: self._feeder.has_failed or self.region.read_to() > 0, "it is fed")
        self._feeder.check()

    def strike(self, strike: Strike) -> None:
        """Strike; after the first strike, and after about every second one, wait until the service reads on."""
        pause_at_random(self.region.chance, 0.2, 3)
        self._feeder.check()
        print(f"{monotonic() - self._began_at:7.1f} s  {strike.__name__}", flush=True)
        is_first = not self._struck
        strike(self.region)
        self._struck[strike.__name__] += 1
        over_at, before = monotonic(), self.region.read_to()
        if is_first or self.region.chance.random() < 0.5:
            self._wait_for(lambda: self.region.is_running() and self.region.read_to() > before, "it reads on")
            self._recovery_seconds = max(self._recovery_seconds, monotonic() - over_at)

    def finish(self) -> RegionRow:
        """Feed to the end, wait for everything, stop the service, and compare each sink."""
        self._feeder.stop()
        self._feeder.check()
        found = {sink: self._compare(sink, "--follow", "--give-up-after", "120s") for sink in self.region.sinks}
        stopped = self.region.verb("stop", seconds=LONGEST_WAIT_SECONDS)
        assert stopped.returncode == 0, stopped.stderr + self.region.last_words()
        self.verdicts = {}
        again = 0
        for sink, (_, followed) in found.items():
            self.verdicts[sink], once_more = self._compare(sink)
            # What came by MQTT is taken by each comparison, what lies in a queue is looked at by both.
            again += followed + once_more if sink == "mqtt" else once_more
        counts: Counter[str] = Counter()
        for verdict in self.verdicts.values():
            counts.update(verdict["counts"])
        return RegionRow(
            self.region.source,
            ", ".join(self.region.sinks),
            self._struck["kill_worker"],
            self._struck["pause_worker"],
            self._struck["kill_broker"],
            self._struck["kill_storage"],
            self._struck["reset"],
            self._feeder.lines,
            sum(each["notifications"] for each in self.verdicts.values()),
            *(counts[each] for each in DEVIATIONS),
            sum(number for name, number in counts.items() if name not in DEVIATIONS),
            again,
            self._recovery_seconds,
            self._seed,
        )

    def judge(self, row: RegionRow) -> None:
        """Check that nothing is wrong in any sink, and that nothing came again through one that keeps a marker."""
        wrong: Mapping[str, Any] = {sink: each["examples"] for sink, each in self.verdicts.items() if not each["good"]}
        assert not wrong, wrong
        assert _WITHOUT_MARKER & set(self.region.sinks) or row.came_again == 0

    def give_up(self) -> None:
        self._feeder.stop()

    def _compare(self, sink: str, *more: str) -> tuple[Any, int]:
        """Return what `verify` says of a sink, and how many messages it has passed over because they came again."""
        compared = self.region.verb("verify", "--json", "--sink", sink, *more, seconds=600)
        assert compared.stdout, compared.stderr + self.region.last_words()
        again = sum(int(each.replace(",", "")) for each in _CAME_AGAIN.findall(compared.stderr))
        return json.loads(compared.stdout.splitlines()[-1]), again

    def _wait_for(self, question: Callable[[], object], what: str) -> None:
        try:
            wait_until(question, what, LONGEST_WAIT_SECONDS, 0.05)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.region.last_words()}") from error
