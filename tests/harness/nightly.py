"""What `make nightly` does beyond `make test`: its families, and searches that go on with new seeds until their time is up."""

import os
from collections.abc import Iterable, Iterator
from time import monotonic
from typing import Any, NamedTuple

import pytest

SEED = int(os.environ.get("SEARCH_SEED", "1"))
"""The first seed of each search and campaign. `make nightly`, `make soak` and `make faults` take another one each time."""

_MINUTES = os.environ.get("SEARCH_MINUTES")
"""How long each search goes on, instead of its own time."""

_PROPERTY = "searches"


class Family(NamedTuple):
    """Name and promise are a row of the table in CONTRIBUTING.md.

    `shown_by` are the tests of `make test` that show the same promise, by file and name. `searched` is what the night adds.
    """

    promise: str
    shown_by: tuple[str, ...]
    searched: str


FAMILIES: dict[str, Family] = {
    "regions": Family(
        "Each source with each sink keeps its promise while workers and brokers are killed.",
        (
            "tests/process/test_regions.py",
            "tests/notification_service/connectors/kafka/test_region_contracts.py",
            "tests/notification_service/connectors/jms/test_contracts.py",
            "tests/notification_service/connectors/mqtt/test_contracts.py",
        ),
        "each source with each sink as processes, each broker killed, resets",
    ),
    "bridge": Family(
        "What a broker acknowledged to the bridge is notified once.",
        (
            "tests/process/test_bridge.py",
            "tests/notification_service/bridge/test_runner.py",
            "tests/notification_service/connectors/mqtt/test_source.py",
        ),
        "each source with each start, each server killed",
    ),
    "ended-workers": Family(
        "A record that ends its worker becomes a dead letter after three exits, and it alone.",
        (
            "tests/service/test_ended_workers.py",
            "tests/process/test_ended_workers.py",
            "tests/notification_service/supervision/test_supervisor.py",
        ),
        "each way in which a process ends, from the stash and at the deadline, over restarts of the service, in a coroutine",
    ),
    "crashes": Family(
        "A worker that dies at any step loses and doubles nothing.",
        ("tests/service/test_crash_at_every_step.py", "tests/service/test_planted_faults.py"),
        "kills, lost answers, other owners and forgotten storages with new seeds",
    ),
    "simulation": Family(
        "Workers on Kafka, and regions, lose, double and misplace nothing, whatever is struck.",
        ("tests/simulation/test_runs.py", "tests/simulation/test_catalogue.py", "tests/simulation/regions/test_runs.py"),
        "simulated runs of each kind with new seeds",
    ),
    "delivery": Family(
        "Each notification of a job is delivered once and in order, whatever dies.",
        (
            "tests/notification_service/delivery/simulation/test_runs.py",
            "tests/notification_service/delivery/direct/test_simulation.py",
        ),
        "simulated runs of the ledger and straight from topics with new seeds",
    ),
    "schedules": Family(
        "Each key has one request at each tick, whatever clocks say and whichever worker dies.",
        (
            "tests/notification_service/delivery/schedules/simulation/test_runs.py",
            "tests/notification_service/delivery/schedules/simulation/test_catalogue.py",
        ),
        "simulated runs with new seeds",
    ),
    "stores": Family(
        "Each command counts once, and each report leaves once.",
        (
            "tests/notification_service/aggregation/simulation/test_runs.py",
            "tests/notification_service/aggregation/simulation/test_catalogue.py",
        ),
        "simulated runs with new seeds",
    ),
    "storages": Family(
        "A storage keeps what it committed, and nothing else.",
        ("tests/storage/infinispan/test_simulated_runs.py", "tests/storage/redis/test_storage.py"),
        "random runs with failures at any request",
    ),
    "brokers": Family(
        "A broker that is killed or frozen at any moment costs and doubles nothing.",
        (
            "tests/notification_service/connectors/kafka/test_away.py",
            "tests/notification_service/connectors/kafka/test_sink_broker.py",
            "tests/notification_service/connectors/kafka/test_source.py",
            "tests/notification_service/connectors/jms/test_faults.py",
        ),
        "each moment of a publication and of an acknowledgement, again and again",
    ),
    "campaigns": Family(
        "The whole service loses, doubles and misplaces nothing under load, whatever is struck.",
        (
            "tests/faults/test_mixed.py",
            "tests/faults/test_of_the_shop.py",
            "tests/process/test_delivery_workers.py",
            "tests/process/test_groups.py",
        ),
        "short campaigns of delivery and of groups, on the other storages, ledgers and transports, events of a shop with the "
        "other strategies, workers that are killed in the midst of calls, and a full Redis",
    ),
    "sources": Family(
        "A source keeps its contract, with assigned partitions and with fixed ones.",
        (
            "tests/notification_service/connectors/kafka/test_region_contracts.py",
            "tests/notification_service/connectors/kafka/test_source.py",
        ),
        "the contract with fixed partitions",
    ),
    "sinks": Family(
        "A sink keeps its contract on each kind of broker.",
        ("tests/notification_service/connectors/mqtt/test_contracts.py",),
        "the other broker of MQTT, and the other QoS",
    ),
    "files": Family(
        "A crash, a failure or a power cut at any operation on files loses and doubles nothing.",
        ("tests/notification_service/connectors/files/test_sink_failures.py", "tests/service/test_power_cut.py"),
        "other sizes of rotation, other torn writes, other workloads",
    ),
    "memory": Family(
        "Memory, threads and files do not grow.",
        ("tests/process/test_garbage.py", "tests/guardian/test_actor_system.py", "tests/service/test_promises.py"),
        "a steady load for a minute, and a million actors",
    ),
    "actors": Family(
        "Actors behave on our system base as on Thespian's own.",
        ("tests/guardian/test_actor_system.py", "tests/guardian/test_actor_system_by_thespians_tests.py"),
        "Thespian's own tests on both bases",
    ),
    "docs": Family(
        "The commands of a page do what it says.",
        ("tests/docs/test_docs.py",),
        "the pages that run regions and the bridge on real servers",
    ),
    "processes": Family(
        "The service as a process that is killed, cut off or refused keeps its promises, and says why.",
        (
            "tests/process/test_life.py",
            "tests/process/test_failing_disk.py",
            "tests/process/test_storage_on_a_server.py",
            "tests/process/test_orders.py",
            "tests/process/test_absence.py",
            "tests/process/test_units.py",
            "tests/storage/infinispan/test_view.py",
            "tests/notification_service/connectors/files/test_requeue.py",
        ),
        "the other storages, more kills, each file that fails in each way",
    ),
    "clocks": Family(
        "A clock that is wrong for a moment costs and doubles nothing.",
        (
            "tests/notification_service/delivery/processes/test_clocks.py",
            "tests/notification_service/delivery/ledger/test_clocks.py",
            "tests/resequencer/test_steady_clock.py",
        ),
        "a service with bridge, groups, delivery and a schedule whose clock is a year off for ten seconds, on Kafka and on files",
    ),
    "jobs": Family(
        "Jobs of the pipeline are the same on a cluster, and lose and double nothing when they are killed.",
        (
            "tests/notification_service/jobs/spark/test_spark_cluster.py",
            "tests/notification_service/jobs/spark/test_archive_topics.py",
            "tests/notification_service/jobs/spark/test_lookups_job.py",
            "tests/notification_service/jobs/spark/test_audit_job.py",
        ),
        "each job as a process that is killed, and on a cluster whose executors come and go",
    ),
    "promises": Family(
        "A fault in what the README or the contract promises is noticed.",
        ("tests/promises/test_planted.py",),
        "each planted fault in a copy of the project",
    ),
    "readers": Family(
        "No bytes break what reads them.",
        ("tests/fuzz/test_fuzz_targets.py",),
        "changed inputs of each reader with new seeds",
    ),
    "pages": Family(
        "Each page of the console fits, has no barrier, and shows the same without script.",
        ("tests/browser/test_console.py",),
        "the pages of services on Redis and Infinispan",
    ),
}


def at_night(family: str, *parameters: Any) -> list[Any]:
    """Return parameters of a test, each marked as one for the night. A plain tuple holds the values of one case."""
    mark = pytest.mark.nightly(family)
    return [pytest.param(*(each if type(each) is tuple else (each,)), marks=mark) for each in parameters]


def search_minutes(minutes: float) -> float:
    """Return how long a search goes on that has so many minutes of its own; 0 is no search."""
    return float(_MINUTES or minutes) if minutes else 0


class Search:
    """Seeds for a test that repeats what it does with each, for as many minutes as its marker gives."""

    def __init__(self, family: str, minutes: float) -> None:
        self.family = family
        self._seconds = 60 * search_minutes(minutes)
        self._began = monotonic()
        self._last = SEED

    def seeds(self) -> Iterator[int]:
        """Yield one seed at least; no further one when the time is up."""
        while self._last == SEED or monotonic() - self._began < self._seconds:
            self._last += 1
            yield self._last - 1

    def as_property(self) -> tuple[str, list[Any]]:
        """Return name and value for `record_property`."""
        seconds = round(monotonic() - self._began)
        return _PROPERTY, [self.family, SEED, self._last - SEED, seconds, round(self._seconds)]


def as_table() -> str:
    """Return the table of CONTRIBUTING.md."""
    rows = (f"| `{name}` | {each.promise} |" for name, each in FAMILIES.items())
    return "\n".join(("| family | promise |", "|---|---|", *rows))


def lines_of(reports: Iterable[Any]) -> list[str]:
    """Return a line for each search of this run's tests, failed ones included."""
    found = [
        (report.nodeid, *value)
        for report in reports
        if getattr(report, "when", None) == "teardown"
        for name, value in report.user_properties
        if name == _PROPERTY
    ]
    return [
        f"{family}: seeds {seed} to {seed + count - 1} in {seconds} s of {budget}: {nodeid}"
        for nodeid, family, seed, count, seconds, budget in sorted(found, key=lambda each: (each[1], each[0]))
    ]
