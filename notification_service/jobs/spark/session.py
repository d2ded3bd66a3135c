"""The Spark session of a job."""

import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark import SparkConf
from pyspark.sql import SparkSession

from notification_service.jobs.errors import JobRefused
from notification_service.jobs.spark import task_daemon
from notification_service.jobs.spark.errors import SPARK_ERRORS, cause_of
from notification_service.jobs.spark.jvm import start_jvm

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
    "spark.python.daemon.module": task_daemon.__name__,
}
_PASSED_ON = ("PYTHONPATH", "PYTHONSAFEPATH", task_daemon.MODULES)
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
    """Start a session. A local one listens on loopback only. Tasks use this Python and its path on every machine."""
    logging.getLogger("py4j").setLevel(logging.WARNING)
    conf = SparkConf().setAppName(name).setMaster(master)
    local = {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"} if master.startswith("local") else {}
    os.environ["PYTHONSAFEPATH"] = "1"
    found = {f"spark.executorEnv.{name}": os.environ[name] for name in _PASSED_ON if name in os.environ}
    conf.setAll([*{**_OPTIONS, **local, **found, **options}.items()])
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if local:
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    start_jvm(conf)
    session = SparkSession.builder.config(conf=conf).getOrCreate()
    session.sparkContext.setLogLevel(_LOG_LEVEL)
    return session
