"""What an audit reads, wherever it comes from."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from pyspark.sql import DataFrame

from pipeline.audit.rules import AuditSettings


class Scope(NamedTuple):
    """`settled` says how far each partition of the input was settled, `size` about how many bytes are read; `rows` makes those of
    `pipeline.audit.rows`.
    """

    settled: Mapping[int, int]
    size: int
    rows: Callable[[AuditSettings], DataFrame]
