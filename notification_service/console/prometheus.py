"""The metrics as Prometheus reads them: `/metrics`, without a login, at an address of its own.

Names and labels keep Prometheus's conventions: a unit in the name, `_total` on counters alone, and one meaning for a label
(docs/contract.md, section 20). A metric that did not is still there beside the one that replaces it; its help says so.
"""

import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from importlib import metadata
from platform import python_version
from typing import NamedTuple, TypeAlias, TypeVar

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from guardian.metrics import STEP_BOUNDS, Histogram, HistogramReport, Histograms
from guardian.region import RegionState
from notification_service.console.groups import Groups, GroupTotals
from notification_service.console.sources import ArchiveDistance
from notification_service.status.aggregation import AggregationStatus, BridgeState, BridgeStatus, StoreCounts, StoreStatus
from notification_service.status.delivery import DeliveredPartition, DeliveryStatus, GateStatus, ScheduleStatus
from notification_service.status.report import CallsStatus, ExitCause, PartitionStatus, RegionStatus, State, StatusReport
from notification_service.status.service_report import NOT_RUNNING, STALE, ServiceReport
from resequencer.clock import instant_of
from resequencer.dead_letter import DeadLetterReason
from resequencer.order import OrderKind, OrderResult
from resequencer.record import Partition

STATES = (*[state.value for state in State], STALE)
_PREFIX = "resequencer_"
DEPRECATED = "Deprecated, replaced by "
"""So the help of a metric begins that will go."""

_Measured = TypeVar("_Measured")
Value: TypeAlias = float | HistogramReport
Samples: TypeAlias = Iterable[tuple[tuple[str, ...], Value | None]]
"""The values of all labels but `slot`, each with the value; None if it is not known, which leaves the sample out."""


class Worker(NamedTuple):
    """One worker's state as `status` says it, and its report."""

    state: str
    report: StatusReport


class Described(NamedTuple):
    """A metric of a worker. Its samples also have the label `slot`, since its counters start at 0 with each worker.

    `name` is without the prefix and, for a counter, without `_total`. `kind` is Prometheus's word for the type.
    """

    name: str
    kind: str
    labels: tuple[str, ...]
    meaning: str
    samples: Callable[[Worker], Samples]

    @property
    def full_name(self) -> str:
        """The name that Prometheus shows. A histogram also has `_bucket`, `_sum` and `_count` behind it."""
        return f"{_PREFIX}{self.name}{'_total' if self.kind == 'counter' else ''}"


COUNTERS = {
    "records": ("records_read", "Records that were read."),
    "differing_keys": ("records_with_differing_key", "Envelopes whose record has another key than their unit."),
    "several_keys": ("units_with_several_keys", "Units whose records have different keys; not of events.format = ipf."),
    "misplaced_records": ("records_misplaced", "Records from another partition than the usual one for their key."),
    "arrived": ("envelopes_arrived", "Envelopes that reached their unit."),
    "handled": ("envelopes_handled", "Envelopes that were handled."),
    "stashed": ("envelopes_stashed", "Envelopes that were stashed."),
    "duplicates": ("envelopes_duplicate", "Envelopes that had arrived before and were dropped."),
    "late": ("envelopes_late", "Envelopes that were notified after a later one of their flow."),
    "incomplete": ("envelopes_incomplete", "Envelopes that were notified although an earlier one was missing."),
    "retries": ("attempts_failed", "Attempts that failed temporarily."),
    "overruns": ("attempts_overrun", "Attempts in the turn that took longer than processing-timeout."),
    "timeouts": ("attempts_timed_out", "Calls of a handler that waits which processing-timeout ended."),
    "unmatched": ("process_objects_unmatched", "Process objects that the settings do not know."),
    "suppressed": ("process_objects_suppressed", "Process objects for which no notification is wanted."),
    "facts": ("facts", "Facts that were committed: statuses of payments for the counts of groups, notified or not."),
    "released_units": ("units_released", "Stashes that were released at a deadline or a bound."),
    "publications_refused": ("publications_refused", "Publications that were refused because the group had rebalanced."),
    "heals": ("heals", "Heals: a storage had lost the state of a partition, and its records were read again."),
    "ownership_lost": ("partitions_lost", "Partitions that another worker took over while this one held them."),
}
"""By the name of the count in a report (docs/operations.md)."""

_HISTOGRAMS = {
    "stash_wait": ("stash_wait_seconds", "Time that an envelope was stashed until it was handled or became a dead letter."),
    "record_to_publication": (
        "record_to_publication_seconds",
        "Time from a record's timestamp until the output of its cycle was published; on Kafka only.",
    ),
    "storage_commit": ("storage_commit_seconds", "Time of a partition's commit, including retries."),
    "publication": ("publication_seconds", "Time of a publication, including retries."),
    "call": ("call_seconds", "Time of a call of a handler that waits, until its answer or time-out."),
}
_STEPS = ("poll", "decide", "commit", "publish")
_NO_DURATIONS = {**Histograms().report(), "call": Histogram(STEP_BOUNDS).report()}
_HELD = (OrderResult.HELD_TO_ITS_END, OrderResult.HELD_UNTIL_RESUMED, OrderResult.HELD_UNTIL_BOUND)
_OUTCOMES_OF_ORDERS = (
    *(f"{kind} {result}" for kind in OrderKind for result in OrderResult if kind is OrderKind.HOLD or result not in _HELD),
    f"unreadable {OrderResult.REFUSED_UNREADABLE}",
)


def _states(states: Iterable[str], find: Callable[[Worker], str | None], write: Callable[[str], str], worker: Worker) -> Samples:
    """1 for the state that is found, 0 for the others; no samples without one. `write` makes the label of a state."""
    found = find(worker)
    return [] if found is None else [((write(state),), float(state == found)) for state in states]


def _worker_state(worker: Worker) -> str:
    return worker.state


def _region_state(worker: Worker) -> str | None:
    return None if worker.report.region is None else worker.report.region.state


def _hyphenated(state: str) -> str:
    return state.replace(" ", "-")


def _instead(name: str, meaning: str) -> str:
    """The help of a metric that another one replaces."""
    return f"{DEPRECATED}{_PREFIX}{name}. {meaning}"


def _plain(get: Callable[[StatusReport], Value | None], worker: Worker) -> Samples:
    return [((), get(worker.report))]


def _count(name: str, worker: Worker) -> Samples:
    return [((), worker.report.counts.get(name, 0))]


def _by(known: Iterable[str], get: Callable[[StatusReport], Mapping[str, int]], worker: Worker) -> Samples:
    """A counter by something of which all values are known: each has its 0 from the start, so that `increase` sees the first."""
    counts = dict.fromkeys(known, 0) | dict(get(worker.report))
    return [(tuple(name.split(" ", 1)), count) for name, count in counts.items()]


def _of_calls(name: str, meaning: str, get: Callable[[CallsStatus], float]) -> Described:
    return _gauge(name, meaning, lambda each: None if each.calls is None else get(each.calls))


def _partitions(get: Callable[[PartitionStatus], float | None], worker: Worker) -> Samples:
    return [((each.partition,), get(each)) for each in worker.report.partitions]


def _histogram(name: str, worker: Worker) -> Samples:
    return [((), worker.report.histograms.get(name, _NO_DURATIONS[name]))]


def _notifications(worker: Worker) -> Samples:
    return [((status,), count) for status, count in worker.report.notifications.items()]


def _of_dependencies(worker: Worker) -> Samples:
    return [((name,), units) for name, units in worker.report.unavailable.items()]


def _lookups(worker: Worker) -> Samples:
    return [] if worker.report.lookups_version is None else [((worker.report.lookups_version,), 1)]


def _cause(of_exit: str) -> str:
    return "ordered" if of_exit == ExitCause.ORDERED else str(of_exit)


def _steps(worker: Worker) -> Samples:
    return [((step,), worker.report.histograms.get(f"cycle_{step}", _NO_DURATIONS[f"cycle_{step}"])) for step in _STEPS]


def _of_region(get: Callable[[RegionStatus], float | None], worker: Worker) -> Samples:
    return [] if worker.report.region is None else [((), get(worker.report.region))]


def _region_durations(worker: Worker) -> Samples:
    found = worker.report.region
    if found is None:
        return []
    steps = {"drain": found.drain_ms, "checkpoint": found.checkpoint_ms, "publication": found.publication_ms}
    steps["reset"] = found.reset_ms
    return [((step,), None if took is None else took / 1_000) for step, took in steps.items()]


def _seconds_of(instant: str | None) -> float | None:
    return None if instant is None else instant_of(instant) / 1_000


def _gauge(name: str, meaning: str, get: Callable[[StatusReport], float | None]) -> Described:
    return Described(name, "gauge", (), meaning, partial(_plain, get))


def _count_paused(report: StatusReport) -> float:
    return sum(each.paused_by is not None for each in report.partitions)


def _of_partition(name: str, meaning: str, get: Callable[[PartitionStatus], float | None]) -> Described:
    return Described(name, "gauge", ("partition",), meaning, partial(_partitions, get))


METRICS: tuple[Described, ...] = (
    Described(
        "worker_status",
        "gauge",
        ("state",),
        "1 for the state that the worker is in, 0 for the others.",
        partial(_states, STATES, _worker_state, _hyphenated),
    ),
    Described(
        "worker_state",
        "gauge",
        ("state",),
        _instead("worker_status", "A state has spaces."),
        partial(_states, STATES, _worker_state, str),
    ),
    _gauge("worker_start_timestamp_seconds", "When the worker started.", lambda each: _seconds_of(each.started_at)),
    _gauge("worker_report_timestamp_seconds", "When the worker last reported.", lambda each: _seconds_of(each.reported_at)),
    Described(
        "worker_exits",
        "counter",
        ("cause",),
        "Exits of the slot's workers under this supervisor: exit-code, signal, "
        "hung (handling-limit), record (in flight), ordered (by an operator).",
        partial(
            _by, tuple(map(_cause, ExitCause)), lambda each: {_cause(name): count for name, count in each.restart_causes.items()}
        ),
    ),
    Described(
        "worker_restarts",
        "counter",
        ("reason",),
        _instead("worker_exits_total", "The reason is the cause; told is ordered."),
        partial(_by, ExitCause, lambda each: each.restart_causes),
    ),
    Described(
        "region_status",
        "gauge",
        ("state",),
        "1 for the state of the worker's region (its source, units and sinks), 0 for the others.",
        partial(_states, RegionState, _region_state, _hyphenated),
    ),
    Described(
        "region_state",
        "gauge",
        ("state",),
        _instead("region_status", "A state has spaces."),
        partial(_states, RegionState, _region_state, str),
    ),
    Described(
        "region_intervals",
        "counter",
        (),
        "Intervals of the region that had work and were completed.",
        lambda worker: [((), 0 if worker.report.region is None else worker.report.region.sequence)],
    ),
    Described(
        "region_resets",
        "counter",
        (),
        "Resets of the region, ordered ones included.",
        lambda worker: [((), 0 if worker.report.region is None else worker.report.region.resets)],
    ),
    Described(
        "region_resets_in_a_row",
        "gauge",
        (),
        "Resets in a row that did not help. An interval with work, a quiet minute and an order of an operator end the row.",
        partial(_of_region, lambda each: each.attempts),
    ),
    Described(
        "region_last_duration_seconds",
        "gauge",
        ("step",),
        "How long the steps of the last interval with work took, and the last reset.",
        _region_durations,
    ),
    *(Described(name, "counter", (), meaning, partial(_count, count)) for count, (name, meaning) in COUNTERS.items()),
    Described(
        "notifications_committed",
        "counter",
        ("status",),
        "Notifications that were committed, by the status in the pain.002.",
        _notifications,
    ),
    Described(
        "notifications",
        "counter",
        ("outcome",),
        _instead("notifications_committed_total", "The outcome is the status."),
        _notifications,
    ),
    Described(
        "dead_letters",
        "counter",
        ("reason",),
        "Dead letters that were committed, by reason.",
        partial(_by, DeadLetterReason, lambda each: each.dead_letters),
    ),
    Described(
        "orders",
        "counter",
        ("order", "outcome"),
        "Outcomes of orders that were committed, by the kind of the order and its result.",
        partial(_by, _OUTCOMES_OF_ORDERS, lambda each: each.orders),
    ),
    _gauge("paused_partitions", "Partitions of the worker that an order paused.", _count_paused),
    *(Described(name, "histogram", (), meaning, partial(_histogram, key)) for key, (name, meaning) in _HISTOGRAMS.items()),
    Described("cycle_step_seconds", "histogram", ("step",), "Time of each step of a cycle that had work.", _steps),
    _of_calls("calls_under_way", "Calls of the handler under way; absent if it does not wait.", lambda each: each.under_way),
    _of_calls("calls_waiting", "Units whose call has not begun yet.", lambda each: each.waiting),
    _of_calls("calls_lingering", "Calls that continue after their time-out.", lambda each: each.lingering),
    _of_calls("longest_call_seconds", "For how long the longest call has been under way.", lambda each: each.longest_ms / 1_000),
    _gauge("units_active", "Units with an actor.", lambda each: each.units.active),
    _gauge("units_waiting", "Units in which something waits.", lambda each: each.units.waiting),
    _gauge("units_backlogged", "Deadlines that have passed but wait for unread records.", lambda each: each.units.backlogged),
    _gauge("units_held", "Waiting units that an order holds.", lambda each: each.units.held),
    _gauge("stashed_envelopes", "Envelopes in the stashes.", lambda each: each.units.stashed_envelopes),
    _gauge("stashed_bytes", "Bytes of stashes in memory.", lambda each: each.units.stashed_bytes_in_memory),
    _gauge(
        "oldest_wait_timestamp_seconds",
        "Since when the unit that has waited longest waits; absent while none waits.",
        lambda each: _seconds_of(min((wait.since for wait in each.oldest_waits), default=None)),
    ),
    _gauge("longest_wait_seconds", "Longest time that an envelope was stashed.", lambda each: each.longest_wait_ms / 1_000),
    _of_partition("partition_read_offset", "The next offset to read.", lambda each: each.read_to),
    _of_partition("partition_acknowledged_offset", "Where reading would begin after a restart.", lambda each: each.acknowledged),
    _of_partition("partition_unpublished_records", "Committed records that are not published.", lambda each: each.unpublished),
    _of_partition(
        "partition_lag_offsets",
        "Unread part of the log; in a file each byte is an offset. Absent while it is not known.",
        lambda each: each.lag,
    ),
    _of_partition(
        "partition_stable_lag_offsets",
        "Unread part of the log up to its stable end, which open transactions hold back. Absent while it is not known.",
        lambda each: each.lag_to_stable_end,
    ),
    _of_partition("partition_lag", _instead("partition_lag_offsets", "The same value."), lambda each: each.lag),
    _of_partition(
        "partition_stable_lag",
        _instead("partition_stable_lag_offsets", "The same value."),
        lambda each: each.lag_to_stable_end,
    ),
    _of_partition(
        "partition_lag_seconds",
        "For how long at most the oldest unread record has been unread; absent where that is not known.",
        lambda each: None if each.lag_ms is None else each.lag_ms / 1_000,
    ),
    _of_partition(
        "partition_held_offset", "The offset that holds the acknowledged position back, if one does.", lambda each: each.held_by
    ),
    _of_partition(
        "partition_held_timestamp_seconds",
        "Since when an offset holds the acknowledged position back.",
        lambda each: _seconds_of(each.held_since),
    ),
    Described(
        "partition_untaken",
        "gauge",
        ("partition", "server"),
        "1 for a partition that is assigned but not taken over yet, because this server is unavailable.",
        lambda worker: [((each.partition, each.unavailable), 1) for each in worker.report.untaken],
    ),
    Described(
        "server_up",
        "gauge",
        ("server",),
        "1 if the worker's source, storage or output answers, 0 if not; absent until that is known.",
        lambda worker: [((name,), float(each.is_available)) for name, each in worker.report.servers.items()],
    ),
    Described(
        "server_change_timestamp_seconds",
        "gauge",
        ("server",),
        "Since when the server answers, or does not.",
        lambda worker: [((name,), _seconds_of(each.since)) for name, each in worker.report.servers.items()],
    ),
    Described(
        "dependency_units_waiting",
        "gauge",
        ("dependency",),
        "Units that wait for a server which handlers cannot reach; absent while it answers.",
        _of_dependencies,
    ),
    Described(
        "dependency_waiting_units",
        "gauge",
        ("server",),
        _instead("dependency_units_waiting", "The server is the dependency."),
        _of_dependencies,
    ),
    Described(
        "lookups_release_info",
        "gauge",
        ("release",),
        "1 with the release of the lookups in use as a label; absent where there are none.",
        _lookups,
    ),
    Described("lookups_info", "gauge", ("version",), _instead("lookups_release_info", "The version is the release."), _lookups),
    _gauge(
        "lookups_created_timestamp_seconds",
        "When the lookups in use were built.",
        lambda each: _seconds_of(each.lookups_created_at),
    ),
)

_FAMILIES: dict[str, type[GaugeMetricFamily | CounterMetricFamily | HistogramMetricFamily]] = {
    "gauge": GaugeMetricFamily,
    "counter": CounterMetricFamily,
    "histogram": HistogramMetricFamily,
}

BUILD = ("build_info", "1, with the versions of the service and of Python as labels.")
PROCESS_METRICS = {
    "process_cpu_seconds_total": "User and system CPU time of a process of the service.",
    "process_resident_memory_bytes": "Resident memory of the process.",
    "process_virtual_memory_bytes": "Virtual memory of the process.",
    "process_start_time_seconds": "When the process started.",
    "process_open_fds": "Open file descriptors of the process.",
    "process_max_fds": "How many file descriptors the process may have open.",
}
"""With the label `process`: `console`, `supervisor`, `bridge`, and `worker-K`, `delivery-K` and `aggregation-K` for slot K."""

SERVICE_METRICS = {
    "up": "1 while the service runs, 0 while it does not.",
    "ready": "1 if all workers are ready, 0 if not.",
    "workers": "How many workers the service has.",
}
"""Gauges of the whole service, without labels. The others are absent while it does not run."""


NEW_DEAD_LETTERS = (
    "dead_letters_new",
    "Dead letters about which no operator has done anything, also of earlier runs; absent while they cannot be counted.",
)
"""A gauge of the whole service with the label `reason`. The console counts them now and then, also while no worker runs."""

ARCHIVE_METRICS: Mapping[str, tuple[str, Callable[[ArchiveDistance], int]]] = {
    "archive_retained_offsets": (
        "Offsets from the log's first one to the end of the archive of the topics; negative if records were deleted "
        "before they were archived.",
        lambda each: each.retained,
    ),
    "archive_lag_offsets": (
        "Offsets of the log, up to its stable end, that are not in the archive of the topics.",
        lambda each: each.lag,
    ),
}
"""Gauges of the whole service with the label `partition`; absent without an archive at a path, and while it is not known."""


DELIVERY_WORKERS = (
    "delivery_workers_delivering",
    "How many delivery workers of the service deliver; absent where no receiver is configured.",
)
GATE_METRICS: Mapping[str, tuple[str, Callable[[GateStatus], float | None]]] = {
    "delivery_gate_open": (
        "1 while the receiver is called (gate open), 0 while it sleeps or cannot be reached (gate shut).",
        lambda each: int(each.is_open),
    ),
    "delivery_rows_waiting": (
        "Notifications in the ledger, the database of deliveries, that are not delivered yet.",
        lambda each: each.waiting,
    ),
    "delivery_rows_failed": (
        "Notifications in the ledger that have failed, until they are delivered again or deleted.",
        lambda each: each.failed,
    ),
    "delivery_units_held": (
        "Units that wait for a person, because a notification of them has failed.",
        lambda each: each.held_units,
    ),
    "delivery_jobs_stalled": (
        "Jobs that take nothing in although their source was not read to the end.",
        lambda each: each.stalled_jobs,
    ),
    "delivery_jobs_missing": (
        "Jobs that lack a part of their source, which was removed before it was read, until an operator accepts the loss.",
        lambda each: each.missing_jobs,
    ),
    "delivery_intake_age_seconds": (
        "Time since the source of the live job was read; absent without a live job.",
        lambda each: None if each.unread_ms is None else each.unread_ms / 1_000,
    ),
}
"""Gauges with the label `receiver`, as the delivery workers reported them last. Workers with one ledger report the same."""
PAUSED = ("delivery_receiver_paused", "1 while an operator has paused the receiver, 0 while not.")
"""A gauge with the label `receiver`."""
OLDEST_UNDELIVERED = (
    "delivery_oldest_undelivered_timestamp_seconds",
    "Since when the oldest row or record waits that is not delivered to the receiver; absent if none does.",
)
"""A gauge with the label `receiver`."""
CALLS = (
    "delivery_calls",
    "Calls of a delivery worker to the receiver, since its start, by the class of the answer, or by why there is none.",
)
"""A counter with the labels `process`, `receiver` and `answer`."""
CALL_SECONDS = ("delivery_call_seconds", "Time of a call of a delivery worker to the receiver, until its answer or time-out.")
"""A histogram with the labels `process` and `receiver`."""
RETRIES = ("delivery_rows_retried", "How often notifications in the ledger were to be delivered again, by the mode of the retry.")
"""A gauge with the labels `receiver` and `mode`: the ledger forgets rows."""
TOPIC_METRICS: Mapping[str, tuple[str, Callable[[Sequence[DeliveredPartition]], float | None]]] = {
    "delivery_topic_lag_offsets": (
        "Unread offsets of the topics of a receiver that is delivered to straight from topics.",
        lambda partitions: sum(max(0, each.end - each.position) for each in partitions),
    ),
    "delivery_records_blocked": (
        "Records that were read and for which a call has failed.",
        lambda partitions: sum(each.blocked for each in partitions),
    ),
    "delivery_oldest_open_timestamp_seconds": (
        "When the oldest record that was read and is not done was written to its topic; absent if there is none.",
        lambda partitions: min(
            (instant_of(each.oldest_at) / 1_000 for each in partitions if each.oldest_at is not None), default=None
        ),
    ),
    "delivery_partitions_paused": (
        "Partitions that are not read now, because too much is blocked or because a person has to act.",
        lambda partitions: sum(each.pause is not None or each.problem is not None for each in partitions),
    ),
}
"""Gauges with the labels `receiver` and `topic`, over the partitions of this service's workers."""
SCHEDULE_METRICS: Mapping[str, tuple[str, Callable[[ScheduleStatus], float | None]]] = {
    "schedule_tick_timestamp_seconds": ("The last tick of the schedule that was begun.", lambda each: _seconds_of(each.tick)),
    "schedule_overdue_tick_timestamp_seconds": (
        "The tick of the schedule that is due and whose requests are not all made; absent if there is none.",
        lambda each: _seconds_of(each.overdue_since),
    ),
    "schedule_requests": (_instead("schedule_requests_made_total", "The same value."), lambda each: each.total),
    "schedule_ticks_waiting": (
        "The requests that wait for the receiver, as a number of ticks of the schedule.",
        lambda each: each.ticks_waiting,
    ),
}
"""Gauges with the label `schedule`."""
SCHEDULE_COUNTERS: Mapping[str, tuple[str, Callable[[ScheduleStatus], float | None]]] = {
    "schedule_requests_made": ("Requests that the schedule has made since it began.", lambda each: each.total)
}
"""Counters with the label `schedule`."""


@dataclass(frozen=True, eq=False)
class ServiceCollector(Collector):
    """Reads the reports at each scrape. A worker that does not report any more keeps its last values, and is `stale`.

    `find_new_dead_letters` returns the new ones by reason, `find_archive_distances` those by partition; None if not known.
    `find_delivery`, `find_bridge` and `find_aggregation` return what delivery workers, bridge and aggregation workers report.
    """

    find_report: Callable[[], ServiceReport | None]
    find_new_dead_letters: Callable[[], Mapping[str, int] | None] = lambda: None
    find_archive_distances: Callable[[], Mapping[Partition, ArchiveDistance] | None] = lambda: None
    find_delivery: Callable[[], DeliveryStatus] = DeliveryStatus
    groups: Groups | None = None
    find_bridge: Callable[[], BridgeStatus] = BridgeStatus
    find_aggregation: Callable[[], AggregationStatus] = AggregationStatus

    def collect(self) -> Iterator[Metric]:
        found = self.find_report()
        is_up = found is not None and found.state != NOT_RUNNING
        workers = [Worker(*each) for each in found.workers] if found is not None and is_up else []
        is_ready = found is not None and found.state == State.READY
        for name, value in (("up", is_up), ("ready", is_ready), ("workers", len(workers))):
            yield _metric((name, SERVICE_METRICS[name]), (), [((), float(value))])
        dead_letters = self.find_new_dead_letters() or {}
        yield _metric(NEW_DEAD_LETTERS, ("reason",), (((reason,), count) for reason, count in dead_letters.items()))
        distances = self.find_archive_distances() or {}
        yield from _metrics(ARCHIVE_METRICS, ("partition",), [((str(each),), found) for each, found in distances.items()])
        delivery = self.find_delivery()
        yield from _of_delivery(delivery)
        schedules = [((each.schedule,), each) for each in delivery.schedules]
        yield from _metrics(SCHEDULE_METRICS, ("schedule",), schedules)
        yield from _metrics(SCHEDULE_COUNTERS, ("schedule",), schedules, CounterMetricFamily)
        groups, aggregation, bridge = self.groups, self.find_aggregation(), self.find_bridge()
        totals = None if groups is None else groups.watch.glance()
        yield _metric(READABLE, (), [] if groups is None else [((), totals is not None)])
        yield from aggregation_metrics(aggregation, totals)
        yield from bridge_metrics(bridge)
        yield _metric(BUILD, ("version", "python_version"), [((_version(), python_version()), 1)])
        yield from process_metrics(_processes(workers, delivery, aggregation, bridge))
        for each in METRICS:
            yield _family(each, workers)


@cache
def _version() -> str:
    return metadata.version("resequencer")


def _processes(
    workers: Sequence[Worker], delivery: DeliveryStatus, aggregation: AggregationStatus, bridge: BridgeStatus
) -> Mapping[str, int]:
    """Return the processes of the service on this machine that are known to run, by name."""
    named = [("console", os.getpid())]
    named += [(f"worker-{each.report.slot}", each.report.worker_process_id or 0) for each in workers]
    if workers and workers[0].report.process_id not in [process_id for _, process_id in named]:
        named.append(("supervisor", workers[0].report.process_id))
    for kind, processes in (("delivery", delivery.delivery_workers), ("aggregation", aggregation.aggregation_workers)):
        named += [(f"{kind}-{each.slot}", each.process_id or 0) for each in processes]
    if bridge.bridge is not None:
        named.append(("bridge", bridge.bridge.process_id or 0))
    return {name: process_id for name, process_id in named if process_id}


def process_metrics(processes: Mapping[str, int]) -> Iterator[Metric]:
    """Yield what each process uses, as any exporter names it, with the label `process`; nothing of one that has ended."""
    families = {
        name: (CounterMetricFamily if name.endswith("_total") else GaugeMetricFamily)(name, meaning, labels=("process",))
        for name, meaning in PROCESS_METRICS.items()
    }
    for process, process_id in processes.items():
        collector = ProcessCollector(pid=partial(int, process_id), registry=None)
        for sample in (each for family in collector.collect() for each in family.samples):
            if sample.name in families:
                families[sample.name].add_metric((process,), sample.value)
    yield from families.values()


def _metric(
    named: tuple[str, str],
    labels: Sequence[str],
    samples: Iterable[tuple[tuple[str, ...], float | None]],
    kind: type[GaugeMetricFamily | CounterMetricFamily] = GaugeMetricFamily,
) -> Metric:
    """Return a metric of a name and a meaning, with its samples. One without a value is absent."""
    name, meaning = named
    family = kind(f"{_PREFIX}{name}", meaning, labels=labels)
    for values, value in samples:
        if value is not None:
            family.add_metric(values, value)
    return family


def _metrics(
    table: Mapping[str, tuple[str, Callable[[_Measured], float | None]]],
    labels: Sequence[str],
    measured: Sequence[tuple[tuple[str, ...], _Measured]],
    kind: type[GaugeMetricFamily | CounterMetricFamily] = GaugeMetricFamily,
) -> Iterator[Metric]:
    """Yield the metrics of a table; each has a sample for each of what is measured, with these values of the labels."""
    for name, (meaning, get) in table.items():
        yield _metric((name, meaning), labels, ((values, get(each)) for values, each in measured), kind)


def _of_delivery(status: DeliveryStatus) -> Iterator[Metric]:
    delivering = sum(each.problem is None for each in status.delivery_workers)
    yield _metric(DELIVERY_WORKERS, (), [((), delivering)] if status.delivery_workers else [])
    for each in _metrics(GATE_METRICS, ("receiver",), [((gate.receiver,), gate) for gate in status.gates]):
        if each.name == f"{_PREFIX}delivery_gate_open":
            for receiver in status.direct:
                each.add_sample(each.name, {"receiver": receiver.receiver}, int(receiver.reason is None))
        yield each
    pauses = [(gate.receiver, gate.pause) for gate in status.gates]
    pauses += [(receiver.receiver, receiver.pause) for receiver in status.direct]
    yield _metric(PAUSED, ("receiver",), (((name,), int(pause is not None)) for name, pause in pauses))
    backlogs = [(gate.receiver, gate.backlog) for gate in status.gates]
    backlogs += [(receiver.receiver, receiver.backlog) for receiver in status.direct]
    oldest = (((name,), _seconds_of(backlog.oldest_at)) for name, backlog in backlogs if backlog is not None)
    yield _metric(OLDEST_UNDELIVERED, ("receiver",), oldest)
    called = [((f"delivery-{found.slot}", found.receiver), found) for found in status.receiver_calls]
    answers = (((*of, answer), count) for of, found in called for answer, count in found.answers.items())
    yield _metric(CALLS, ("process", "receiver", "answer"), answers, CounterMetricFamily)
    durations = HistogramMetricFamily(f"{_PREFIX}{CALL_SECONDS[0]}", CALL_SECONDS[1], labels=("process", "receiver"))
    for of, found in called:
        durations.add_metric(of, _buckets(found.durations), found.durations.sum)
    yield durations
    retries = (((gate.receiver, mode), number) for gate in status.gates for mode, number in gate.retries)
    yield _metric(RETRIES, ("receiver", "mode"), retries)
    yield from _metrics(TOPIC_METRICS, ("receiver", "topic"), list(_by_topic(status).items()))


def _by_topic(status: DeliveryStatus) -> Mapping[tuple[str, str], list[DeliveredPartition]]:
    found: defaultdict[tuple[str, str], list[DeliveredPartition]] = defaultdict(list)
    for receiver in status.direct:
        for each in receiver.partitions:
            partition = Partition.find(each.partition)
            found[receiver.receiver, partition.topic if partition else each.partition].append(each)
    return found


def _family(described: Described, workers: Iterable[Worker]) -> Metric:
    name, labels = f"{_PREFIX}{described.name}", ("slot", *described.labels)
    family = _FAMILIES[described.kind](name, described.meaning, labels=labels)
    for worker in workers:
        for values, value in described.samples(worker):
            of_sample = (str(worker.report.slot), *values)
            if isinstance(family, HistogramMetricFamily):
                if isinstance(value, HistogramReport):
                    family.add_metric(of_sample, _buckets(value), value.sum)
            elif isinstance(value, int | float):
                family.add_metric(of_sample, value)
    return family


def _buckets(report: HistogramReport) -> list[tuple[str, float]]:
    return list(zip([*map(str, report.bounds), "+Inf"], report.counts, strict=True))


AGGREGATION_WORKERS = (
    "aggregation_workers_running",
    "How many aggregation workers of the service run; absent without aggregation.",
)
STORE_GAUGES: Mapping[str, tuple[str, Callable[[StoreStatus], float | None]]] = {
    "aggregation_store_stands_still": (
        "1 while a problem keeps the store from applying commands, also of a single partition; 0 otherwise.",
        lambda each: int(each.problem is not None or each.untaken > 0),
    ),
    "aggregation_lag_offsets": (
        "What is not applied yet of the commands that the service's workers read; in a file each byte is an offset. "
        "Absent while it is not known.",
        lambda each: each.behind,
    ),
    "aggregation_pending_timestamp_seconds": (
        "What was there at this instant is not all applied, as far as is known; of a store that keeps up it is a moment ago.",
        lambda each: _seconds_of(each.pending_since),
    ),
    "aggregation_commands_behind": (_instead("aggregation_lag_offsets", "The same value."), lambda each: each.behind),
}
"""Gauges with the label `store`."""
STORE_COUNTERS: Mapping[str, tuple[str, Callable[[StoreCounts], float]]] = {
    "aggregation_commands_applied": ("Commands that were applied, since the worker's start.", lambda each: each.applied),
    "aggregation_completions": ("Completions, as reports on groups are, since the worker's start.", lambda each: each.completed),
    "aggregation_dead_letters": ("Commands that cannot be applied, since the worker's start.", lambda each: each.dead_letters),
}
"""Counters with the labels `process` and `store`."""
READABLE = ("groups_readable", "1 while the console can read the groups, 0 while it cannot; absent where none are counted.")
GROUPS = ("groups", "Groups by their state, as they were within the last minutes; absent while they cannot be read.")
"""A gauge with the label `state`."""
GROUP_GAUGES: Mapping[str, tuple[str, Callable[[GroupTotals], float | None]]] = {
    "groups_with_problems": (
        "Groups that are not through and cannot complete by themselves; absent while they cannot be read.",
        lambda each: each.with_problems,
    ),
    "groups_oldest_open_timestamp_seconds": (
        "When the oldest group that is not through began; absent if there is none.",
        lambda each: None if each.oldest_at is None else each.oldest_at / 1_000,
    ),
}


def aggregation_metrics(status: AggregationStatus, totals: GroupTotals | None) -> Iterator[Metric]:
    """Yield the metrics. `totals` is None where groups are not counted, or cannot be read."""
    running = sum(each.problem is None for each in status.aggregation_workers)
    yield _metric(AGGREGATION_WORKERS, (), [((), running)] if status.aggregation_workers else [])
    stores = [((each.store,), each) for each in status.stores]
    yield from _metrics(STORE_GAUGES, ("store",), stores)
    counts = [((f"aggregation-{each.slot}", each.store), each) for each in status.store_counts]
    yield from _metrics(STORE_COUNTERS, ("process", "store"), counts, CounterMetricFamily)
    by_state = {} if totals is None else totals.by_state
    yield _metric(GROUPS, ("state",), (((state,), count) for state, count in by_state.items()))
    yield from _metrics(GROUP_GAUGES, (), [] if totals is None else [((), totals)])


BRIDGE_GAUGES: Mapping[str, tuple[str, Callable[[BridgeState], float]]] = {
    "bridge_running": (
        "1 while the bridge runs, 0 while it does not; absent where none is configured.",
        lambda each: int(each.process_id is not None),
    ),
    "bridge_stands_still": (
        "1 while the bridge takes nothing, because its source does not answer, it cannot start, or it does not run; 0 otherwise.",
        lambda each: int(each.problem is not None),
    ),
    "bridge_messages_waiting": (
        "Messages that the bridge has taken and that are not acknowledged yet.",
        lambda each: each.waiting,
    ),
}
BRIDGE_COUNTER = (
    "bridge_messages_appended",
    "Messages that the bridge has appended and acknowledged, since its start.",
)


def bridge_metrics(status: BridgeStatus) -> Iterator[Metric]:
    """Yield the metrics, without samples where no bridge is configured."""
    bridge = status.bridge
    yield from _metrics(BRIDGE_GAUGES, (), [] if bridge is None else [((), bridge)])
    yield _metric(BRIDGE_COUNTER, (), [] if bridge is None else [((), bridge.appended)], CounterMetricFamily)


def make_metrics_application(collector: Collector) -> Starlette:
    """Make the application; it reads the reports at each scrape, in a thread beside the console's requests."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(collector)

    def metrics(request: Request) -> Response:
        del request
        return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)

    return Starlette(routes=[Route("/metrics", metrics)])
