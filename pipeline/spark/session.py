"""The Spark session of a job."""

import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark import SparkConf
from pyspark.sql import SparkSession

from pipeline.errors import JobRefused
from pipeline.spark.errors import SPARK_ERRORS, cause_of
from pipeline.spark.jvm import start_jvm

NAME = "resequencer"
_OPTIONS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # Instants are UTC here as everywhere else.
    "spark.sql.session.timeZone": "UTC",
    # Otherwise from_csv parses only the selected columns, and does not notice that a line has too many.
    "spark.sql.optimizer.enableCsvExpressionOptimization": "false",
    # Values that cannot be converted are found and refused by the rules, not by an exception in the middle of a job.
    "spark.sql.ansi.enabled": "false",
    # A speculative attempt at a slow task would write the same shard twice.
    "spark.speculation": "false",
}
_LOG_LEVEL = "ERROR"


@contextmanager
def spark_session(master: str, options: dict[str, str], name: str = NAME) -> Iterator[SparkSession]:
    """Yield a session, and stop it at the end. `name` is the application's; `options` override those of the jobs.

    Raises:
        JobRefused: Spark does not start on this master.
    """
    try:
        session = start_session(master, options, name)
    except SPARK_ERRORS as error:
        raise JobRefused(
            f"Spark does not start on {master}: {cause_of(error)}; use local[*] or the URL of a master that has workers"
        ) from error
    try:
        yield session
    finally:
        session.stop()


def start_session(master: str, options: dict[str, str], name: str = NAME) -> SparkSession:
    """Start a session. A local one listens on loopback only. Tasks use this Python and this PYTHONPATH on every machine."""
    logging.getLogger("py4j").setLevel(logging.WARNING)
    conf = SparkConf().setAppName(name).setMaster(master)
    local = {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"} if master.startswith("local") else {}
    found = {"spark.executorEnv.PYTHONPATH": path} if (path := os.environ.get("PYTHONPATH")) else {}
    conf.setAll([*{**_OPTIONS, **local, **found, **options}.items()])
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if local:
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    start_jvm(conf)
    session = SparkSession.builder.config(conf=conf).getOrCreate()
    session.sparkContext.setLogLevel(_LOG_LEVEL)
    return session
