"""Makes aggregation workers from the configuration, and what they report by."""

import os
from collections.abc import Callable, Sequence
from functools import partial

from notification_service.aggregation.runner import StoreReport, StoreRunner
from notification_service.aggregation.worker import AggregationWorker
from notification_service.configuration.configuration import Configuration
from notification_service.status.aggregation import AggregationFile, AggregationReport, StoreStatus
from notification_service.supervision.stop_signal import StopSignal
from notification_service.supervision.system_clock import SystemClock, steady_clock
from notification_service.wiring.aggregation.stores import lock_store, make_aggregate, open_store, stores_of
from resequencer.clock import Clock, instant_text


def make_worker(configuration: Configuration, slot: int, stop: StopSignal) -> AggregationWorker:
    """Return the worker of a slot; nothing is connected yet. Its directories are its own until the process ends.

    Raises:
        ConfigurationError: A user's own callable cannot be imported.
        AlreadyRunning: Another process is the worker of this slot.
    """
    run_directory, trusted_ms = configuration.notification.run_directory, configuration.clock_trusted_after_ms
    clock = steady_clock(run_directory, f"aggregation-{slot}", trusted_ms, keeps=True)
    runners = []
    for names in stores_of(configuration):
        lock_store(names, slot)
        opened = partial(open_store, configuration, names, slot, stop, clock)
        runners.append(StoreRunner(names.name, make_aggregate(configuration, names.name), opened, clock, stop.wait))
    return AggregationWorker(runners, stop.wait)


def make_report(configuration: Configuration, slot: int) -> Callable[[Sequence[StoreReport]], None]:
    """Return what the worker in this slot reports by."""
    return partial(_report, AggregationFile(configuration.notification.run_directory, slot), slot, SystemClock())


def _report(file: AggregationFile, slot: int, clock: Clock, stores: Sequence[StoreReport]) -> None:
    told = tuple(map(_told, stores))
    problem = next((f"store {each.store}: {each.problem}" for each in told if each.problem is not None), None)
    file.write(AggregationReport(os.getppid(), os.getpid(), slot, instant_text(clock.now()), problem, told))


def _told(report: StoreReport) -> StoreStatus:
    return StoreStatus(
        report.name,
        tuple(sorted(map(str, report.behind))),
        sum(report.behind.values()),
        report.applied,
        report.completed,
        report.dead_letters,
        report.problem,
        report.notes,
        report.untaken,
    )
