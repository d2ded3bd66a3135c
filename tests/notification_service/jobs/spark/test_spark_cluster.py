"""The jobs on a standalone cluster, whose master, workers and executors are processes of their own."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import lmdb
import pytest
from harness.processes.operated_service import NOTIFICATION, OperatedService
from harness.spark.archived_topics import ArchivedTopics
from harness.spark.cluster import SparkCluster
from harness.spark.options import FAST, SHIPPED
from harness.spark.processed_topics import ProcessedTopics
from pyspark.sql import SparkSession

from notification_service.jobs.audit.scopes import archive_scope
from notification_service.jobs.audit.summary import as_json
from notification_service.jobs.lookups.job import build_lookups
from notification_service.jobs.spark.job_settings import JobSettings, SourceSettings
from notification_service.lookups.directory import LookupsDirectory
from notification_service.lookups.release import read_manifest
from notification_service.lookups.shapes import CUSTOMERS
from notification_service.supervision.exit_code import ExitCode

ROWS = 3_000
LONGEST_WAIT_SECONDS = 600
OWN_ORDER = """
from resequencer.strategies.sequence import Sequence


class OwnOrder(Sequence):
    name = "OWN_ORDER"

    def __init__(self, settings):
        del settings
"""
COUNTING_JOB = """
import json, sys, time
from notification_service.jobs.lookups.csv_source import read_csv
from notification_service.jobs.spark.job_settings import SourceSettings
from notification_service.jobs.spark.session import start_session

master, options, path = sys.argv[1:]
spark = start_session(master, json.loads(options))

def wait_for(cores):
    while spark.sparkContext.defaultParallelism != cores:
        time.sleep(0.1)

wait_for(int(sys.stdin.readline()))
read = read_csv(spark, SourceSettings("csv", path), ("initiating_party",), ())
print("counted", flush=True)
wait_for(int(sys.stdin.readline()))
print(json.dumps([read.counted, read.rows.count(), read.rows.agg({"line": "max"}).first()[0]]), flush=True)
"""
"""The program reads how many executors to wait for, counts the lines, and prints `counted`; then it does the same
for the rows.
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[SparkCluster]:
    cluster = SparkCluster()
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.kill()


@pytest.fixture
def customers(tmp_path: Path) -> Path:
    rows = "".join(f"P{number},{'email' if number % 3 else 'push'},2026-01-{number % 28 + 1:02}\n" for number in range(ROWS))
    file = tmp_path / "customers.csv"
    file.write_text(f"initiating_party,channel,valid_from\n{rows}")
    return file


def content(directory: LookupsDirectory) -> dict[str, dict[bytes, bytes]]:
    """Return every key and value of the current release."""
    version = directory.get_current().version
    found: dict[str, dict[bytes, bytes]] = {}
    for name, table in read_manifest(directory, version).tables.items():
        rows = found.setdefault(name, {})
        for shard in table.shards:
            file = directory.release(version) / name / shard.file
            with lmdb.open(str(file), subdir=False, readonly=True, lock=False) as shard_file, shard_file.begin() as reading:
                rows.update(reading.cursor())
    return found


def options(logs: Path) -> dict[str, str]:
    """Options for a job that starts when both executors are there, and logs in `logs` which executor did what."""
    logs.mkdir()
    logged = {"spark.eventLog.enabled": "true", "spark.eventLog.compress": "false", "spark.eventLog.dir": logs.as_uri()}
    reachable = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1", "spark.executor.memory": "512m"}
    patient = {"spark.network.timeout": "600s", "spark.scheduler.maxRegisteredResourcesWaitingTime": "600s"}
    both = {"spark.cores.max": "2", "spark.scheduler.minRegisteredResourcesRatio": "1.0", **patient}  # Before the first task.
    small_blocks = {"spark.sql.files.maxPartitionBytes": "16384", "spark.sql.files.openCostInBytes": "0"}
    quick = {**FAST, "spark.executor.extraJavaOptions": FAST["spark.driver.extraJavaOptions"]}
    return {**quick, **small_blocks, **logged, **reachable, **both}


def events_of(logs: Path, kind: str) -> list[dict[str, Any]]:
    """Return events of the job's own event log."""
    lines = [line for file in logs.rglob("*") if file.is_file() for line in file.read_text().splitlines()]
    return [json.loads(line) for line in lines if line.startswith(f'{{"Event":"SparkListener{kind}"')]


def name_of(logs: Path) -> str:
    (started,) = events_of(logs, "ApplicationStart")
    return str(started["App Name"])


def executors_of(logs: Path) -> set[str]:
    """Return the executors that completed a task."""
    events = events_of(logs, "TaskEnd")
    return {event["Task Info"]["Executor ID"] for event in events if event["Task End Reason"]["Reason"] == "Success"}


def test_a_cluster_builds_what_this_machine_builds_and_each_executor_has_a_part_in_it(
    spark: SparkSession, cluster: SparkCluster, customers: Path, tmp_path: Path
) -> None:
    sources = {CUSTOMERS: (SourceSettings("csv", str(customers)),)}
    here = LookupsDirectory(tmp_path / "here")
    build_lookups(spark, JobSettings(here.path, 1, sources), 1_790_000_000_000, "test", lambda _: None)

    logs = tmp_path / "events"
    described = {
        "sources": {name: [{"format": each.format, "path": each.path} for each in its] for name, its in sources.items()},
        "spark": {"options": options(logs)},
    }
    (tmp_path / "sources.conf").write_text(json.dumps(described))  # This is HOCON, too.
    (tmp_path / "service.conf").write_text(f'{NOTIFICATION}.lookups.sources = "sources.conf"\n')
    service = OperatedService(tmp_path, config="service.conf")
    built = service.verb("lookups", "build", "--master", cluster.master, seconds=LONGEST_WAIT_SECONDS)
    assert built.returncode == 0, built.stderr
    there = LookupsDirectory(service.run_directory / "lookups")
    assert content(there) == content(here)
    assert len(content(there)[CUSTOMERS]) == ROWS
    assert executors_of(logs) == {"0", "1"}


@pytest.mark.nightly("jobs")
@pytest.mark.parametrize("comes", [True, False], ids=["comes", "goes"])
def test_no_row_is_lost_when_an_executor_comes_or_goes_after_the_lines_were_counted(
    cluster: SparkCluster, customers: Path, tmp_path: Path, *, comes: bool
) -> None:
    """Both queries of the job would then read the file in different blocks, unless the blocks are fixed."""
    by_cores = {"spark.default.parallelism", "spark.sql.files.maxPartitionBytes", "spark.cores.max"}
    given = {name: value for name, value in options(tmp_path / "events").items() if name not in by_cores}
    command = [sys.executable, "-c", COUNTING_JOB, cluster.master, json.dumps(given), str(customers)]
    with ExitStack() as third:
        if not comes:
            third.enter_context(cluster.another_worker())
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as job:
            assert job.stdin is not None
            assert job.stdout is not None
            try:
                print(2 if comes else 3, file=job.stdin, flush=True)
                assert job.stdout.readline() == "counted\n"
                if comes:
                    third.enter_context(cluster.another_worker())
                else:
                    third.close()
                print(3 if comes else 2, file=job.stdin, flush=True)
                assert json.loads(job.stdout.readline()) == [ROWS, ROWS, ROWS + 1]
            finally:
                job.kill()


@pytest.mark.nightly("jobs")
def test_a_cluster_archives_and_audits_topics_as_this_machine_does(
    processed: ProcessedTopics, cluster: SparkCluster, tmp_path: Path
) -> None:
    archived = ArchivedTopics(processed.spark, processed.stage, str(tmp_path / "archive"))

    def on_cluster(verb: str, *arguments: str) -> str:
        (tmp_path / verb).write_text(json.dumps({"spark": {verb: {"options": options(tmp_path / f"{verb}-events")}}}))
        set_values = (f"lookups.sources={tmp_path / verb}", f"archive.directory={archived.location}")
        overrides = ("--set", *(f"{NOTIFICATION}.{each}" for each in set_values))
        done = processed.service.verb(verb, "--master", cluster.master, *arguments, *overrides, seconds=LONGEST_WAIT_SECONDS)
        assert done.returncode == 0, done.stdout + done.stderr
        assert executors_of(tmp_path / f"{verb}-events") == {"0", "1"}
        assert name_of(tmp_path / f"{verb}-events") == f"resequencer {verb}"
        return done.stdout

    on_cluster("archive-topics")
    archived.assert_archived()
    there = on_cluster("audit", "--archive", "--json", "--output", str(tmp_path / "there"))
    here = processed.audit(archive_scope(processed.spark, archived.location, processed.stage.topics), "here")
    assert there == as_json(here).decode()


@pytest.mark.nightly("jobs")
def test_what_a_user_runs_where_he_is_works_on_a_cluster_too(cluster: SparkCluster, tmp_path: Path) -> None:
    """Paths are relative to the user's working directory, and the user's own strategy is there."""
    (tmp_path / "own_order.py").write_text(OWN_ORDER)
    (tmp_path / "sources.conf").write_text(json.dumps({"spark": {"options": options(tmp_path / "events")}}))
    own = 'lookups.sources = "sources.conf", resequencer.strategy = "own_order:OwnOrder"'
    shipped = SHIPPED.with_name("application.conf")
    (tmp_path / "service.conf").write_text(f'include "{shipped}"\n{NOTIFICATION} {{ {own} }}\n')
    service = OperatedService(tmp_path, config="service.conf")
    try:
        service.start_and_wait()
        service.tell("uow-1", 2, 1, 3)
        service.wait_for("uow-1", 1, 2, 3)
        assert service.stop() == 0
    finally:
        service.clear_away()
    audited = service.verb("audit", "--master", cluster.master, seconds=LONGEST_WAIT_SECONDS)
    assert audited.returncode == 0, audited.stdout + audited.stderr
    assert "3 notifications of 1 unit compared with 3 envelopes" in audited.stdout


def test_a_master_that_is_none_is_reported_by_name(tmp_path: Path) -> None:
    (tmp_path / "service.conf").write_text("")
    refused = OperatedService(tmp_path, config="service.conf").verb("lookups", "build", "--master", "sprak://x", seconds=600)
    assert refused.returncode == ExitCode.FAILED
    assert "Spark does not start on sprak://x: " in refused.stderr
    assert "Traceback" not in refused.stderr
