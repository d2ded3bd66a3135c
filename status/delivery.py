"""What delivery workers tell `status`, each in a file of its own."""

import os
from pathlib import Path

import msgspec

from domain.clock import Instant, instant_of
from status.run_file import RunFile

STALE_AFTER_MS = 10_000
"""A delivery worker reports every second; a report this old says that it hangs or cannot write."""


class GateStatus(msgspec.Struct, frozen=True):
    """The gate of a receiver: shut while the receiver sleeps or cannot be reached. Instants are in ISO 8601 (UTC).

    `since` is when the gate was shut, and `probe_at` when the next call tries whether the receiver is awake; None while it is
    open. `waiting` are the rows that are not delivered yet.
    """

    receiver: str
    is_open: bool
    waiting: int
    reason: str | None = None
    since: str | None = None
    probe_at: str | None = None


class DeliveryReport(msgspec.Struct, frozen=True):
    """The last report of one delivery worker. `problem` says why it does not deliver, None while it does.

    `service_process_id` is the supervisor's, `process_id` the worker's own, or the supervisor's while there is no worker. Then
    `reported_at` is None.
    """

    service_process_id: int
    process_id: int
    slot: int
    reported_at: str | None
    problem: str | None = None
    gates: tuple[GateStatus, ...] = ()


class DeliveryFile(RunFile[DeliveryReport]):
    """`delivery-K.json` of the delivery worker in slot K."""

    def __init__(self, run_directory: Path, slot: int) -> None:
        super().__init__(run_directory, f"delivery-{slot}", DeliveryReport)
        self._slot = slot

    def write_problem(self, why: str) -> None:
        """Write, as the supervisor, why the worker does not run."""
        self.write(DeliveryReport(os.getpid(), os.getpid(), self._slot, None, why))


class DeliveryWorkerStatus(msgspec.Struct, frozen=True):
    """A delivery worker as `status` shows it."""

    slot: int
    process_id: int | None
    problem: str | None


class DeliveryStatus(msgspec.Struct, frozen=True, omit_defaults=True):
    """What `status` says of delivery: the workers of this service, and the gates of the receivers by the newest report."""

    delivery_workers: tuple[DeliveryWorkerStatus, ...] = ()
    gates: tuple[GateStatus, ...] = ()


def find_delivery(run_directory: Path, service_process_id: int, count: int, now: Instant) -> DeliveryStatus:
    """Combine the reports of the `count` delivery workers of a service that runs."""
    reports = [DeliveryFile(run_directory, slot).find(service_process_id) for slot in range(count)]
    workers = tuple(_worker(slot, report, now) for slot, report in enumerate(reports))
    told = [each for each in reports if each is not None and each.gates]
    newest = max(told, key=lambda each: each.reported_at or "", default=None)
    return DeliveryStatus(workers, () if newest is None else newest.gates)


def delivery_lines(status: DeliveryStatus) -> list[str]:
    """Return the lines for people: one for each worker, and one for each receiver."""
    workers = [
        f"delivery worker {each.slot}{f' (process {each.process_id})' if each.process_id else ''}: {each.problem or 'delivers'}"
        for each in status.delivery_workers
    ]
    return [*workers, *map(_gate_line, status.gates)]


def _worker(slot: int, report: DeliveryReport | None, now: Instant) -> DeliveryWorkerStatus:
    if report is None:
        return DeliveryWorkerStatus(slot, None, "it is starting")
    process = None if report.process_id == report.service_process_id else report.process_id
    if report.reported_at is not None and now - instant_of(report.reported_at) > STALE_AFTER_MS:
        return DeliveryWorkerStatus(slot, process, f"stale: no report since {report.reported_at}")
    return DeliveryWorkerStatus(slot, process, report.problem)


def _gate_line(gate: GateStatus) -> str:
    waiting = f"{gate.waiting} waiting"
    if gate.is_open:
        return f"receiver {gate.receiver}: open, {waiting}"
    return f"receiver {gate.receiver}: shut since {gate.since}, next probe at {gate.probe_at}, {waiting}: {gate.reason}"
