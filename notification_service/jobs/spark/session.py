"""The Spark session of a job."""

import logging
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Thread
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException, PySparkRuntimeError
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from notification_service.jobs.errors import JobRefused
from notification_service.jobs.spark import task_daemon
from resequencer.errors import ConfigurationError

SPARK_ERRORS = (PySparkException, Py4JError)
_SHOWN = 300


def cause_of(error: Exception) -> str:
    """Return one line: the first line of the innermost cause.

    If that line only introduces a Python error, the error's last line is added.
    """
    if isinstance(error, Py4JJavaError):
        cause: Any = error.java_exception
        while cause.getCause() is not None:
            cause = cause.getCause()
        text = str(cause.toString())
    else:
        text = str(error)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if not lines:
        return type(error).__name__
    last = next((line for line in reversed(lines) if not line.startswith("at ")), lines[0])
    return (f"{lines[0]} {last}" if lines[0].endswith(":") and last != lines[0] else lines[0])[:_SHOWN]


_STDERR = 2
_SAID_ALWAYS = (
    b"WARNING: Using incubator modules: jdk.incubator.vector",
    b"Using Spark's default log4j profile:",
    b"Setting default log level to ",
    b"To adjust logging level use sc.setLogLevel",
    b"WARN NativeCodeLoader: Unable to load native-hadoop library",
    b"WARN SparkConf: Note that spark.local.dir will be overridden",
)
_FAREWELL_SECONDS = 10


def start_jvm(conf: SparkConf) -> None:
    """Start the virtual machine, once per process; later sessions and contexts use it.

    Other lines that it, or a Python task on this machine, writes to stderr are copied to this process's stderr.

    Raises:
        PySparkRuntimeError: It does not start; the reason is on stderr.
    """
    if SparkContext._gateway is not None:  # noqa: SLF001 - pyspark offers no other way to see whether there is one.
        return
    ours, its = os.pipe()
    listener = Thread(target=_pass_on, args=(ours,), name="spark-stderr", daemon=True)
    listener.start()
    try:
        gateway = launch_gateway(conf, {"stderr": its})
    except PySparkRuntimeError:
        os.close(its)
        listener.join(_FAREWELL_SECONDS)
        raise
    os.close(its)
    SparkContext._ensure_initialized(gateway=gateway)  # noqa: SLF001 - The public way would also start a context.


def _pass_on(output: int) -> None:
    with open(output, "rb") as lines:
        for line in lines:
            if not any(each in line for each in _SAID_ALWAYS):
                with suppress(OSError):  # Stderr may be closed.
                    os.write(_STDERR, line)


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
    if task_daemon.MODULES in os.environ:
        found["spark.python.daemon.module"] = task_daemon.__name__
    conf.setAll([*{**_OPTIONS, **local, **found, **options}.items()])
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if local:
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    start_jvm(conf)
    session = SparkSession.builder.config(conf=conf).getOrCreate()
    session.sparkContext.setLogLevel(_LOG_LEVEL)
    return session


_SAME = {
    "bootstrap_servers": "bootstrap.servers",
    "client_dns_lookup": "client.dns.lookup",
    "client_rack": "client.rack",
    "connections_max_idle_ms": "connections.max.idle.ms",
    "fetch_max_bytes": "fetch.max.bytes",
    "max_partition_fetch_bytes": "max.partition.fetch.bytes",
    "receive_buffer_bytes": "receive.buffer.bytes",
    "reconnect_backoff_max_ms": "reconnect.backoff.max.ms",
    "reconnect_backoff_ms": "reconnect.backoff.ms",
    "security_protocol": "security.protocol",
    "sasl_mechanism": "sasl.mechanism",
    "ssl_password": "ssl.key.password",
}
_FILES = {
    "ssl_cafile": ("ssl.truststore.type", "ssl.truststore.certificates"),
    "ssl_certfile": ("ssl.keystore.type", "ssl.keystore.certificate.chain"),
    "ssl_keyfile": ("ssl.keystore.type", "ssl.keystore.key"),
}
_CLASSES = {"PLAIN": "plain.PlainLoginModule"}


def java_options(consumer: Mapping[str, Any]) -> dict[str, str]:
    """Return the Java client's options. `consumer` holds options by kafka-python's names, as `KafkaSettings` does.

    Certificates are passed by content, because tasks on other machines may not have the files.

    Raises:
        ConfigurationError: A file cannot be read.
    """
    options = {theirs: str(consumer[ours]) for ours, theirs in _SAME.items() if consumer.get(ours) is not None}
    for ours, (kind, theirs) in _FILES.items():
        if consumer.get(ours) is not None:
            options |= {kind: "PEM", theirs: _read(str(consumer[ours]))}
    if consumer.get("ssl_check_hostname") is False:
        options["ssl.endpoint.identification.algorithm"] = ""
    if consumer.get("sasl_plain_username") is not None:
        options["sasl.jaas.config"] = _login(consumer)
    return options


def _login(consumer: Mapping[str, Any]) -> str:
    module = _CLASSES.get(str(consumer.get("sasl_mechanism")), "scram.ScramLoginModule")
    given = {"username": consumer["sasl_plain_username"], "password": consumer.get("sasl_plain_password", "")}
    options = " ".join(f'{name}="{_escaped(str(value))}"' for name, value in given.items())
    return f"org.apache.kafka.common.security.{module} required {options};"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="ascii")
    except (OSError, UnicodeError) as error:
        raise ConfigurationError(path, f"cannot be read as a PEM file: {error}") from error
