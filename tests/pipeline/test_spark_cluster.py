"""The same job on a standalone cluster: master, workers and executors are processes of their own."""

import json
from collections.abc import Iterator
from pathlib import Path

import lmdb
import pytest
from operated_service import NOTIFICATION, OperatedService
from pyspark.sql import SparkSession
from spark_cluster import SparkCluster
from spark_options import FAST

from daemon.exit_code import ExitCode
from enrichment.directory import LookupsDirectory
from enrichment.release import read_manifest
from enrichment.shapes import CUSTOMERS, REASONS, SETTINGS
from pipeline.job_settings import JobSettings, SourceSettings
from pipeline.lookups_job import build_lookups

ROWS = 3_000
PATIENCE_SECONDS = 600
SHIPPED_SETTINGS = Path(__file__).parents[2] / "conf" / "notification-settings.csv"


@pytest.fixture
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
    """Of the current release, every key and its value."""
    version = directory.get_current().version
    found: dict[str, dict[bytes, bytes]] = {}
    for name, table in read_manifest(directory, version).tables.items():
        rows = found.setdefault(name, {})
        for shard in table.shards:
            file = directory.release(version) / name / shard.file
            with lmdb.open(str(file), subdir=False, readonly=True, lock=False) as shard_file, shard_file.begin() as reading:
                rows.update(reading.cursor())
    return found


def executors_of(logs: Path) -> set[str]:
    """Those that ended a task, as the job's own event log has it."""
    lines = [line for file in logs.rglob("*") if file.is_file() for line in file.read_text().splitlines()]
    events = [json.loads(line) for line in lines if line.startswith('{"Event":"SparkListenerTaskEnd"')]
    return {event["Task Info"]["Executor ID"] for event in events if event["Task End Reason"]["Reason"] == "Success"}


def test_a_cluster_builds_what_this_machine_builds_and_each_executor_has_a_part_in_it(
    spark: SparkSession, cluster: SparkCluster, customers: Path, tmp_path: Path
) -> None:
    sources = {
        REASONS: (SourceSettings("project-codes"),),
        SETTINGS: (SourceSettings("csv", str(SHIPPED_SETTINGS)),),
        CUSTOMERS: (SourceSettings("csv", str(customers)),),
    }
    here = LookupsDirectory(tmp_path / "here")
    build_lookups(spark, JobSettings(here.path, 1, sources), 1_790_000_000_000, "test", lambda _: None)

    logs = tmp_path / "events"
    logs.mkdir()
    logged = {"spark.eventLog.enabled": "true", "spark.eventLog.compress": "false", "spark.eventLog.dir": logs.as_uri()}
    reachable = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1", "spark.executor.memory": "512m"}
    patient = {"spark.network.timeout": "600s", "spark.scheduler.maxRegisteredResourcesWaitingTime": "600s"}
    both = {"spark.cores.max": "2", "spark.scheduler.minRegisteredResourcesRatio": "1.0", **patient}  # Before the first task.
    small_blocks = {"spark.sql.files.maxPartitionBytes": "16384", "spark.sql.files.openCostInBytes": "0"}
    quick = {**FAST, "spark.executor.extraJavaOptions": FAST["spark.driver.extraJavaOptions"]}
    options = {**quick, **small_blocks, **logged, **reachable, **both}
    described = {
        "sources": {name: [{"format": each.format, "path": each.path} for each in its] for name, its in sources.items()},
        "spark": {"options": options},
    }
    (tmp_path / "sources.conf").write_text(json.dumps(described))  # Which is HOCON, too.
    (tmp_path / "service.conf").write_text(f'{NOTIFICATION}.lookups.sources = "sources.conf"\n')
    service = OperatedService(tmp_path, config="service.conf")
    built = service.verb("lookups", "build", "--master", cluster.master, seconds=PATIENCE_SECONDS)
    assert built.returncode == 0, built.stderr
    there = LookupsDirectory(service.run_directory / "lookups")
    assert content(there) == content(here)
    assert len(content(there)[CUSTOMERS]) == ROWS
    assert executors_of(logs) == {"0", "1"}


def test_a_master_that_is_none_is_told_by_name(tmp_path: Path) -> None:
    (tmp_path / "service.conf").write_text("")
    refused = OperatedService(tmp_path, config="service.conf").verb("lookups", "build", "--master", "sprak://x", seconds=600)
    assert refused.returncode == ExitCode.NOT_SO
    assert "Spark does not start on sprak://x: " in refused.stderr
    assert "Traceback" not in refused.stderr
