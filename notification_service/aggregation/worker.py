"""An aggregation worker: one process that runs all stores, each in a thread of its own."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Event

from notification_service.aggregation.runner import StoreReport, StoreRunner

_REPORT_MS = 1_000


class AggregationWorker:
    """`wait` sleeps for that many milliseconds, and returns earlier when the process is to end."""

    def __init__(self, runners: Sequence[StoreRunner], wait: Callable[[int], object]) -> None:
        self._runners = runners
        self._wait = wait

    def run(self, is_stopping: Callable[[], bool], report: Callable[[Sequence[StoreReport]], object]) -> None:
        """Run until `is_stopping`, and end what is under way. An unexpected error of a store ends them all, and is raised."""
        is_ending = Event()
        with ThreadPoolExecutor(len(self._runners), "store") as threads:
            running = [threads.submit(each.run, lambda: is_stopping() or is_ending.is_set()) for each in self._runners]
            while not is_stopping() and not any(each.done() for each in running):
                report([each.report() for each in self._runners])
                self._wait(_REPORT_MS)
            is_ending.set()
        for each in running:
            each.result()
