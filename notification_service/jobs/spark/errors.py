"""Spark's exceptions, and their causes as text for people."""

from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException

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
