"""What Spark raises, and what of it a person can use."""

from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException

SPARK_ERRORS = (PySparkException, Py4JError)
_SHOWN = 300


def cause_of(error: Exception) -> str:
    """One line: the first of the innermost cause."""
    if isinstance(error, Py4JJavaError):
        cause: Any = error.java_exception
        while cause.getCause() is not None:
            cause = cause.getCause()
        text = str(cause.toString())
    else:
        text = str(error)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return (lines[0] if lines else type(error).__name__)[:_SHOWN]
