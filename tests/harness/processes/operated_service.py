"""The service as an operator runs it: real processes in a directory of their own, on the file transport."""

from __future__ import annotations

import json
import resource
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from harness.driving import wire
from harness.processes.command import may_run_here, run_here
from harness.waiting import DEADLINE_SECONDS, wait_until

from notification_service.connectors.line_format import Line, encode_line
from notification_service.status.file import StatusFile
from notification_service.status.report import State, StatusReport

FLOW = "PaymentInitiationFlow"
EVENTS = ("PaymentReceived", "PaymentValidated", "PaymentAccepted", "SettlementStarted", "PaymentSettled", "PaymentCompleted")
"""Event names by sequence, from 1; each has a row in the shipped settings."""

NOTIFICATION = "payment-status-notification"
RESEQUENCER = f"{NOTIFICATION}.resequencer"
_WITHOUT_CONSOLE = f"{NOTIFICATION}.http.enabled=false"
"""A process less for each service; tests of the console set a key of `http`."""

INGRESS = "ipf.processing-data.ingress"
KAFKA_CLIENTS = f"{INGRESS}.kafka.consumer.kafka-clients"


def kafka_overrides(bootstrap: str, source: str, output: str, dead: str, group: str) -> tuple[str, ...]:
    """Return the overrides for a service on Kafka: three topics and its group."""
    return (
        f"{INGRESS}.transport=kafka",
        f"{NOTIFICATION}.transport=kafka",
        f'{KAFKA_CLIENTS} {{ bootstrap.servers = "{bootstrap}", group.id = {group} }}',
        f"{INGRESS}.kafka.consumer.topic={source}",
        f"{NOTIFICATION}.kafka.producer.topic={output}",
        f"{NOTIFICATION}.dead-letters.topic={dead}",
    )


def envelope_line(unit: str, sequence: int, **objects: Any) -> bytes:
    """Return a line, without its newline, that makes one notification."""
    event = {"eventName": EVENTS[sequence - 1], "processFlowName": FLOW}
    process = {"uniqueId": f"{unit}#{sequence}", "objectType": "PROCESS_FLOW_EVENT", "object": event}
    value = wire(unit, FLOW, sequence, f"{unit}#{sequence}", processObjects=[process], **objects)
    return encode_line(Line(value, unit.encode(), (("schema-version", b"2"),)))[:-1]


class OperatedService:
    """`python -m notification_service …` in `directory`, with these overrides for every command; one `run` at a time.

    All processes are started with `environment`, or else with ours.
    """

    def __init__(
        self, directory: Path, *overrides: str, config: str | None = None, environment: Mapping[str, str] | None = None
    ) -> None:
        self.directory = directory
        self.environment = environment
        http = () if any(f"{NOTIFICATION}.http." in each for each in overrides) else (_WITHOUT_CONSOLE,)
        self.arguments = [*(("--config", config) if config else ()), "--set", *http, *overrides]
        self.run_directory = directory / "run" / (Path(config).stem if config else "application")
        self.in_directory = self.run_directory / "in"
        self.out_directory = self.run_directory / "out"
        self.log_file = directory / f"{self.run_directory.name}.log"
        self.process: subprocess.Popen[bytes] | None = None
        self._beside: list[subprocess.Popen[bytes]] = []
        directory.mkdir(parents=True, exist_ok=True)

    # Its run

    def start(self, *overrides: str, largest_file: int | None = None, alone: bool = True) -> OperatedService:
        """Begin `run`, with more overrides if there are any; it cannot make a file grow beyond `largest_file` bytes.

        By default it runs `--alone`: its process is the worker, so a kill hits the worker.
        """
        assert self.process is None or self.process.poll() is not None, "it still runs"
        with self.log_file.open("ab") as log:
            self.process = subprocess.Popen(
                self._command("run", *(("--alone",) if alone else ()), *(("--set", *overrides) if overrides else ())),
                cwd=self.directory,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                preexec_fn=None if largest_file is None else _limiter(largest_file),
            )
        return self

    def start_and_wait(self, *overrides: str) -> OperatedService:
        self.start(*overrides)
        self.wait_for_report(lambda report: report.state == State.READY, "ready")
        return self

    def signal(self, number: int) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    def has_ended_after(self, number: int) -> Callable[[], bool]:
        """Return a question that sends the signal and returns whether the process has ended."""

        def ask() -> bool:
            self.signal(number)
            return self.process is not None and self.process.poll() is not None

        return ask

    def has_died(self) -> bool:
        """Whether the process died as by `kill -9`."""
        return self.process is not None and self.process.poll() == -signal.SIGKILL

    def wait(self, seconds: float = DEADLINE_SECONDS) -> int:
        """Wait for the end of the process, and return its exit code."""
        assert self.process is not None
        return self.process.wait(seconds)

    def stop(self) -> int:
        """Send SIGTERM and return the exit code. It comes within 30 s (docs/contract.md, section 2), or 60 if all is busy."""
        self.signal(signal.SIGTERM)
        return self.wait(60)

    def kill(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    def clear_away(self) -> None:
        """End all processes of the service after a test, even suspended ones."""
        self.kill()
        for each in self._beside:
            each.kill()
            each.wait()

    def allow_files_of(self, size: int) -> None:
        """Raise the limit on file sizes from outside."""
        assert self.process is not None
        resource.prlimit(self.process.pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))

    # Questions and commands

    def verb(self, *arguments: str, seconds: float = DEADLINE_SECONDS) -> subprocess.CompletedProcess[str]:
        """Run another command with the same configuration, and wait for its end."""
        if self.environment is None and may_run_here(arguments):
            verb, *others = arguments
            return run_here(self.directory, [verb, *self.arguments, *others])
        command = self._command(*arguments)
        return subprocess.run(
            command, cwd=self.directory, env=self.environment, capture_output=True, text=True, timeout=seconds, check=False
        )

    def begin_verb(self, *arguments: str) -> subprocess.Popen[bytes]:
        """Start another command beside the service. Its output goes to `<verb>.log`."""
        with (self.directory / f"{arguments[0]}.log").open("ab") as log:
            command = self._command(*arguments)
            self._beside.append(subprocess.Popen(command, cwd=self.directory, env=self.environment, stdout=log, stderr=log))
        return self._beside[-1]

    def wait_for_report(
        self, is_so: Callable[[StatusReport], bool], what: str, seconds: float = DEADLINE_SECONDS
    ) -> StatusReport:
        """Wait for the first report of the running process that satisfies the question."""

        def find() -> StatusReport | None:
            assert self.process is not None
            assert self.process.poll() is None, f"it ended with {self.process.returncode}: {self.log}"
            report = StatusFile(self.run_directory).find()
            return report if report is not None and report.process_id == self.process.pid and is_so(report) else None

        found = wait_until(find, what, seconds)
        assert found is not None
        return found

    def wait_until_idle(self) -> StatusReport:
        """Wait until everything written has been read and nothing waits. The counts are those of this process only."""
        return self.wait_for_report(self._nothing_left(), "everything is read and nothing waits")

    def is_idle(self) -> bool:
        """Whether the running process has read everything and nothing waits, as it has reported last."""
        report = StatusFile(self.run_directory).find()
        assert self.process is not None
        return report is not None and report.process_id == self.process.pid and self._nothing_left()(report)

    def _nothing_left(self) -> Callable[[StatusReport], bool]:
        ends = {
            int(file.stem.removeprefix("partition-")): file.stat().st_size for file in self.in_directory.glob("partition-*.jsonl")
        }

        def is_idle(report: StatusReport) -> bool:
            read = {int(each.partition.rpartition("-")[2]): each.read_to for each in report.partitions}
            unpublished = sum(each.unpublished for each in report.partitions)
            return read == ends and report.units.waiting == 0 and unpublished == 0 and report.state == State.READY

        return is_idle

    # Input and output

    def append(self, *lines: bytes, partition: int = 0) -> None:
        self.in_directory.mkdir(parents=True, exist_ok=True)
        with (self.in_directory / f"partition-{partition}.jsonl").open("ab") as file:
            file.writelines(line + b"\n" for line in lines)

    def tell(self, unit: str, *sequences: int) -> None:
        """Append envelopes of a unit, in this order of arrival."""
        self.append(*(envelope_line(unit, sequence) for sequence in sequences))

    def notifications(self) -> list[dict[str, Any]]:
        """Return the notifications in order, without a last line that is incomplete."""
        return _lines(self.out_directory / "notifications.jsonl")

    def dead_letters(self) -> list[dict[str, Any]]:
        return _lines(self.out_directory / "dead-letters.jsonl")

    def sequences(self, unit: str) -> list[int]:
        """Return the sequences of the unit's notifications, in their order."""
        events = (each["headers"]["event-name"] for each in self.notifications() if each["key"] == unit)
        return [EVENTS.index(event) + 1 for event in events]

    def wait_for(self, unit: str, *sequences: int) -> None:
        """Wait until these notifications have left."""
        self.wait_for_report(lambda _: len(self.sequences(unit)) >= len(sequences), f"{sequences} of {unit} leave")
        assert self.sequences(unit) == [*sequences]

    @property
    def input_lines(self) -> int:
        return sum(file.read_bytes().count(b"\n") for file in self.in_directory.glob("partition-*.jsonl"))

    @property
    def output_bytes(self) -> int:
        """The size of all notifications, with the rotated ones."""
        return sum(file.stat().st_size for file in self.out_directory.glob("notifications.*jsonl"))

    @property
    def log(self) -> str:
        return self.log_file.read_text(encoding="utf-8") if self.log_file.exists() else ""

    def _command(self, verb: str, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "notification_service", verb, *self.arguments, *arguments]


def _lines(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_bytes().split(b"\n")[:-1]] if file.exists() else []


def _limiter(size: int) -> Callable[[], None]:
    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))

    return limit
