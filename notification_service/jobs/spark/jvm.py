"""Starts Spark's virtual machine, and removes its harmless standard warnings from stderr."""

import os
from contextlib import suppress
from threading import Thread

from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkRuntimeError
from pyspark.java_gateway import launch_gateway

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


def _pass_on(said: int) -> None:
    with open(said, "rb") as lines:
        for line in lines:
            if not any(each in line for each in _SAID_ALWAYS):
                with suppress(OSError):  # Stderr may be closed.
                    os.write(_STDERR, line)
