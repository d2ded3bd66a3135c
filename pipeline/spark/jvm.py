"""Starts the virtual machine that Spark runs in, without what it always says and nobody can mend."""

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
    """Once in a process: whoever asks for a session or context from then on gets one in there.

    All else that it, or a task of Python's on this machine, says on stderr is passed on to ours, line by line.

    Raises:
        PySparkRuntimeError: It does not start; why stands on stderr.
    """
    if SparkContext._gateway is not None:  # noqa: SLF001 - Nothing else tells whether there is one.
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
    SparkContext._ensure_initialized(gateway=gateway)  # noqa: SLF001 - Otherwise only a context of its own can be given one.


def _pass_on(said: int) -> None:
    with open(said, "rb") as lines:
        for line in lines:
            if not any(each in line for each in _SAID_ALWAYS):
                with suppress(OSError):  # Nobody listens any more.
                    os.write(_STDERR, line)
