"""What delivery workers report to `status`, each in a file of its own."""

from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec

from guardian.metrics import HistogramReport
from notification_service.delivery.core.backlog import Backlog, merged
from notification_service.delivery.core.jobs import Pause
from notification_service.status.file import LATE_MS, SideFile, SideReport, SideStatus, side_line, side_status
from resequencer.clock import Instant, instant_of
from resequencer.printable import counted, duration_text

_VERY_LATE_MS = 7_200_000


class GateStatus(msgspec.Struct, frozen=True):
    """The gate of a receiver: shut while the receiver sleeps or cannot be reached. Instants are in ISO 8601 (UTC).

    `since` is when the gate was shut, and `probe_at` when the next call tries whether the receiver is awake; None while it is
    open. `waiting` are the rows that are not delivered yet, `failed` those that have failed, `held_units` the units that one of
    them holds. `retries` has for each mode how many calls were to be made again. `stalled_jobs` take nothing in,
    `missing_jobs` lack a part of their source, which went before it was read; `unread_ms` is how long ago the source of the live
    job was read, None without one. `backlog` is None if the worker does not report it. `pause`: a person wants no
    calls.
    """

    receiver: str
    is_open: bool
    waiting: int
    reason: str | None = None
    since: str | None = None
    probe_at: str | None = None
    failed: int = 0
    held_units: int = 0
    retries: tuple[tuple[str, int], ...] = ()
    stalled_jobs: int = 0
    unread_ms: int | None = None
    missing_jobs: int = 0
    backlog: Backlog | None = None
    pause: Pause | None = None


class BlockedStatus(msgspec.Struct, frozen=True):
    """A record that is delivered straight from a topic, and of which a call has failed; `position` is that in the source."""

    position: str
    key: str
    since: str
    attempts: int
    error: str


class DeliveredPartition(msgspec.Struct, frozen=True, omit_defaults=True):
    """How far a partition of a topic is delivered. Offsets from `position` to `end` are not done or not read.

    `open` records were read and are not done; of `blocked` of them a call has failed, and `records` are the first of these.
    `oldest_at` is when the first of the open ones was written to the topic, in ISO 8601 (UTC).
    `skips_all`: an operator has ordered that none of them is tried again. `pause` says why nothing more is read for now, and
    `problem` why the partition cannot be read until a person acts. `backlog` is None if it is not known.
    """

    partition: str
    position: int
    end: int
    open: int
    blocked: int = 0
    records: tuple[BlockedStatus, ...] = ()
    oldest_at: str | None = None
    skips_all: bool = False
    pause: str | None = None
    problem: str | None = None
    backlog: Backlog | None = None


class DirectStatus(msgspec.Struct, frozen=True, omit_defaults=True):
    """A receiver that is delivered to straight from topics, as one worker sees it: the partitions are those of this worker.

    `reason` says why its gate is shut since `since`; None while it is open. `problem` says why nothing is read, and `notes` what
    does not stop it. `pause`: a person wants no calls.
    """

    receiver: str
    reason: str | None = None
    since: str | None = None
    probe_at: str | None = None
    problem: str | None = None
    partitions: tuple[DeliveredPartition, ...] = ()
    notes: tuple[str, ...] = ()
    pause: Pause | None = None

    @property
    def behind(self) -> int:
        """How many offsets lie between the positions and the ends."""
        return sum(each.end - each.position for each in self.partitions)

    @property
    def backlog(self) -> Backlog | None:
        """What waits in all partitions of the workers that report; None while it is not known."""
        return merged(each.backlog for each in self.partitions)

    @property
    def open(self) -> int:
        """How many records were read and are not done."""
        return sum(each.open for each in self.partitions)

    @property
    def blocked(self) -> int:
        """Of how many records a call has failed."""
        return sum(each.blocked for each in self.partitions)

    @property
    def paused(self) -> int:
        """How many partitions are not read for now."""
        return sum(each.pause is not None for each in self.partitions)

    @property
    def first_problem(self) -> str | None:
        """Why nothing is read, or why a partition cannot be read; None while all is well."""
        return self.problem or next((each.problem for each in self.partitions if each.problem is not None), None)


class ScheduleStatus(msgspec.Struct, frozen=True, omit_defaults=True):
    """How far a schedule is. `tick` is the last tick that was begun, None before the first.

    `made` counts its requests so far, and `total` those of all ticks. `overdue_since` is the tick that is due and not done.
    `problem` says why its requests wait. `waiting` requests wait for the receiver, as many as `ticks_waiting` ticks make; None:
    it is not known. Instants are in ISO 8601.
    """

    schedule: str
    expression: str
    tick: str | None = None
    made: int = 0
    total: int = 0
    next_tick: str | None = None
    overdue_since: str | None = None
    problem: str | None = None
    waiting: int | None = None
    ticks_waiting: float | None = None


class ReceiverCalls(msgspec.Struct, frozen=True):
    """The calls to a receiver by the worker in `slot`, since its start: how many led to each answer, and how long they took.

    An answer is the class of its status, as `2xx`, or why there is none: `unreachable`, `broken` or `forbidden`.
    """

    receiver: str
    answers: Mapping[str, int]
    durations: HistogramReport
    slot: int = 0


class DeliveryReport(SideReport, frozen=True):
    """The last report of one delivery worker."""

    gates: tuple[GateStatus, ...] = ()
    direct: tuple[DirectStatus, ...] = ()
    schedules: tuple[ScheduleStatus, ...] = ()
    receiver_calls: tuple[ReceiverCalls, ...] = ()


def delivery_file(run_directory: Path, slot: int) -> SideFile[DeliveryReport]:
    """Return `delivery-K.json` of the delivery worker in slot K."""
    return SideFile(run_directory, f"delivery-{slot}", DeliveryReport)


class DeliveryStatus(msgspec.Struct, frozen=True, omit_defaults=True):
    """What `status` says of delivery: the workers of this service, and the gates of the receivers by the newest report.

    `direct` are the receivers that are delivered to straight from topics, with the partitions of all workers of this service.
    `schedules` are each as the worker reports it that knows most of it. `receiver_calls` has each receiver for each worker.
    """

    delivery_workers: tuple[SideStatus, ...] = ()
    gates: tuple[GateStatus, ...] = ()
    direct: tuple[DirectStatus, ...] = ()
    schedules: tuple[ScheduleStatus, ...] = ()
    receiver_calls: tuple[ReceiverCalls, ...] = ()

    @property
    def undelivered(self) -> int | None:
        """How many rows and offsets are not delivered to all receivers; None if no worker reports a receiver."""
        waiting = [*(each.waiting for each in self.gates), *(each.behind for each in self.direct)]
        return sum(waiting) if waiting else None

    @property
    def oldest_at(self) -> str | None:
        """Since when the oldest of them waits; None if nothing waits, or that is not known."""
        backlogs = [*(each.backlog for each in self.gates), *(each.backlog for each in self.direct)]
        return min((each.oldest_at for each in backlogs if each is not None and each.oldest_at is not None), default=None)


def find_delivery(run_directory: Path, service_process_id: int, count: int, now: Instant) -> DeliveryStatus:
    """Combine the reports of the `count` delivery workers of a service that runs."""
    reports = [delivery_file(run_directory, slot).find(service_process_id) for slot in range(count)]
    workers = tuple(side_status(report, now, slot) for slot, report in enumerate(reports))
    with_gates = [each for each in reports if each is not None and each.gates]
    newest = max(with_gates, key=lambda each: each.reported_at or "", default=None)
    calls = tuple(
        msgspec.structs.replace(each, slot=slot)
        for slot, report in enumerate(reports)
        if report is not None
        for each in report.receiver_calls
    )
    gates = () if newest is None else newest.gates
    return DeliveryStatus(workers, gates, _merged(reports), _merged_schedules(reports), calls)


def delivery_lines(status: DeliveryStatus) -> list[str]:
    """Return the lines for people: one for each worker, and one for each receiver."""
    workers = [side_line(f"delivery worker {each.slot}", each, "delivers") for each in status.delivery_workers]
    direct = [line for each in status.direct for line in _direct_lines(each)]
    return [
        *workers,
        *(line for each in status.gates for line in _gate_lines(each)),
        *direct,
        *map(schedule_line, status.schedules),
    ]


def backlog_text(backlog: Backlog | None) -> str:
    """Return since when the oldest waits, and when all is delivered if that is known, as the end of a sentence; empty if nothing
    waits.
    """
    if backlog is None or not backlog.count:
        return ""
    since = "" if backlog.oldest_at is None else f", the oldest since {backlog.oldest_at}"
    rate = "" if backlog.per_second is None else f", {backlog.per_second:+.1f} per second"
    done = "" if backlog.done_in_ms is None else f", done in {duration_text(backlog.done_in_ms)}"
    return f"{since}{rate}{done}"


def delivery_notes(status: DeliveryStatus, now: Instant) -> list[str]:
    """Say which receivers get nothing, or less than comes, as sentences for `status` and the overview.

    A gate that was shut a moment ago makes no note, nor does a backlog that falls, unless it is hours old.
    """
    rows = [(each.receiver, each.pause, each.since, each.waiting, "row", each.backlog) for each in status.gates]
    offsets = [(each.receiver, each.pause, each.since, each.behind, "offset", each.backlog) for each in status.direct]
    notes = []
    for receiver, pause, shut_since, count, noun, backlog in (*rows, *offsets):
        waiting = f"undelivered: {counted(count, noun)}"
        if pause is not None:
            notes.append(f"receiver {receiver} is paused since {pause.since} by {pause.by}; {waiting}")
        elif count and shut_since is not None and now - instant_of(shut_since) > LATE_MS:
            notes.append(f"receiver {receiver} gets nothing since {shut_since}; {waiting}")
        elif count and shut_since is None and backlog is not None and _is_late(backlog, now):
            notes.append(f"receiver {receiver} falls behind; {waiting}, the oldest since {backlog.oldest_at}")
    return notes


def _is_late(backlog: Backlog, now: Instant) -> bool:
    waits_ms = 0 if backlog.oldest_at is None else now - instant_of(backlog.oldest_at)
    return waits_ms > (LATE_MS if backlog.done_in_ms is None else _VERY_LATE_MS)


def schedule_line(status: ScheduleStatus) -> str:
    """Return a schedule on one line for people."""
    parts = [f"schedule {status.schedule}: {status.expression}, next tick at {status.next_tick or 'none'}"]
    if status.tick is not None:
        parts.append(f"tick {status.tick} has made {counted(status.made, 'request')}")
    if status.overdue_since is not None:
        parts.append(f"tick {status.overdue_since} is due and not done")
    if status.waiting:
        parts.append(f"{counted(status.waiting, 'request')} wait for the receiver")
    parts += [status.problem] if status.problem is not None else []
    return "; ".join(parts)


def _merged(reports: Iterable[DeliveryReport | None]) -> tuple[DirectStatus, ...]:
    """Return each receiver once, with the partitions of all workers. A gate that is shut, and a problem, come first."""
    found: dict[str, DirectStatus] = {}
    for each in (one for report in reports if report is not None for one in report.direct):
        before = found.get(each.receiver, each)
        shown = before if before.reason is not None else each
        partitions = each.partitions if before is each else (*before.partitions, *each.partitions)
        found[each.receiver] = msgspec.structs.replace(
            shown,
            problem=before.problem or each.problem,
            partitions=tuple(sorted(partitions, key=lambda one: one.partition)),
            notes=tuple(dict.fromkeys((*before.notes, *each.notes))),
            pause=before.pause or each.pause,
        )
    return tuple(found.values())


def _merged_schedules(reports: Iterable[DeliveryReport | None]) -> tuple[ScheduleStatus, ...]:
    """Return each schedule once: what a worker has seen of it is behind what the store has, never before it."""
    found: dict[str, ScheduleStatus] = {}
    for each in (one for report in reports if report is not None for one in report.schedules):
        before = found.get(each.schedule, each)
        found[each.schedule] = max(before, each, key=lambda one: (one.tick or "", one.total))
    return tuple(found.values())


def _direct_lines(status: DirectStatus) -> list[str]:
    state = "open" if status.reason is None else f"shut since {status.since}, next probe at {status.probe_at}: {status.reason}"
    lines = [f"receiver {status.receiver}: {state}; {status.behind} behind, {status.open} read{backlog_text(status.backlog)}"]
    lines += [f"receiver {status.receiver}: {each}" for each in (status.pause and status.pause.text, status.problem) if each]
    lines += [f"receiver {status.receiver}: {each}" for each in status.notes]
    for each in status.partitions:
        lines += _partition_lines(status.receiver, each)
    return lines


def _partition_lines(receiver: str, each: DeliveredPartition) -> list[str]:
    name = f"receiver {receiver}, {each.partition}"
    lines = [f"{name}: {each.problem}"] if each.problem is not None else []
    if each.blocked:
        first = each.records[0]
        blocked = f"{counted(each.blocked, 'record')} blocked, the first {first.position} since {first.since}"
        lines.append(f"{name}: {blocked} after {counted(first.attempts, 'attempt')}: {first.error}")
    if each.pause is not None:
        lines.append(f"{name}: paused: {each.pause}")
    if each.skips_all:
        lines.append(f"{name}: what fails is skipped, as an operator has ordered")
    return lines


def _gate_lines(gate: GateStatus) -> list[str]:
    return [_gate_line(gate), *([] if gate.pause is None else [f"receiver {gate.receiver}: {gate.pause.text}"])]


def _gate_line(gate: GateStatus) -> str:
    waiting = f"{gate.waiting} waiting{backlog_text(gate.backlog)}"
    if gate.missing_jobs:
        lacks = f"{counted(gate.missing_jobs, 'job')} without a part of the source, which was removed before it was read"
        waiting = f"{waiting}, {lacks} (`resequencer delivery jobs`)"
    if gate.is_open:
        return f"receiver {gate.receiver}: {'open' if gate.pause is None else 'paused, its gate is open'}, {waiting}"
    return f"receiver {gate.receiver}: shut since {gate.since}, next probe at {gate.probe_at}, {waiting}: {gate.reason}"
