"""One Spark session for all tests of the jobs. It compiles no code, because for a few rows compiling takes longest.

If Spark is not installed (`make test` installs it), no test is collected here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from harness.processes.operated_service import NOTIFICATION, OperatedService
from harness.spark.options import FAST, SHIPPED, fast_sources

if TYPE_CHECKING:
    from harness.spark.processed_topics import ProcessedTopics
    from pyspark.sql import DataFrame, SparkSession

    from notification_service.jobs.lookups.spec import LookupSpec
    from servers.kafka import KafkaServer

if find_spec("pyspark") is None:
    collect_ignore_glob = ["test_*.py", "processes/test_*.py"]
NOT_ADAPTIVE = {"spark.sql.adaptive.enabled": "false"}
"""To plan a query again between its stages takes a seventh of the CPU time here. Jobs in processes of their own are adaptive."""
SMALL_BLOCKS = {"spark.sql.files.maxPartitionBytes": "16384", "spark.sql.files.openCostInBytes": "0"}
"""The block size of Spark, small enough that a test's file has several blocks."""


def pytest_collection_modifyitems(items: Sequence[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.slow)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    from notification_service.jobs.spark.session import start_session

    warehouse = str(tmp_path_factory.mktemp("warehouse"))
    places = {"spark.sql.warehouse.dir": warehouse, "spark.local.dir": warehouse, **_drivers()}
    session = start_session("local[2]", {**FAST, **NOT_ADAPTIVE, **SMALL_BLOCKS, **places})
    yield session
    session.stop()


@pytest.fixture(scope="session")
def processed(spark: SparkSession, kafka: KafkaServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProcessedTopics]:
    """One processed service for all tests that only read its output."""
    from harness.spark.processed_topics import live

    with live(spark, kafka, tmp_path_factory.mktemp("processed")) as processed:
        yield processed


def _drivers() -> dict[str, str]:
    """Return the jars of Kafka and of PostgreSQL; Spark needs them at its start."""
    from notification_service.jobs.maven import with_kafka
    from servers.programs import get_jars

    return with_kafka({"spark.jars": ",".join(map(str, sorted(get_jars("postgresql").glob("*.jar"))))})


@pytest.fixture
def service(tmp_path: Path) -> Iterator[OperatedService]:
    """A service on files; its jobs use the shipped sources."""
    application, sources = SHIPPED.with_name("application.conf"), fast_sources(tmp_path)
    (tmp_path / "service.conf").write_text(f'include "{application}"\n{NOTIFICATION}.lookups.sources = "{sources.name}"\n')
    made = OperatedService(tmp_path, config="service.conf")
    yield made
    made.clear_away()


@pytest.fixture
def rows_of(spark: SparkSession) -> Callable[..., DataFrame]:
    """Return the rows of a lookup as from its sources; missing columns are null, except for the line."""
    from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType

    def rows_of(spec: LookupSpec, *rows: Mapping[str, object]) -> DataFrame:
        kinds = {"source": IntegerType(), "line": LongType()}
        names = ("source", "place", "line", "text", "flaw", *spec.columns)
        schema = StructType([StructField(name, kinds.get(name, StringType())) for name in names])
        given = [
            tuple(({"source": 0, "place": "here", "line": line} | dict(row)).get(name) for name in names)
            for line, row in enumerate(rows, 1)
        ]
        return spark.createDataFrame(given, schema)

    return rows_of
