"""The input of an audit, independent of its source."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from pyspark.sql import DataFrame

from notification_service.jobs.audit.groups.job import GroupRecords
from notification_service.jobs.audit.rules import AuditSettings


class Scope(NamedTuple):
    """`settled` holds the offset up to which each input partition was settled, `size` the approximate number of bytes to read.

    `rows` makes the rows of `notification_service.jobs.audit.rows`. `groups` are the records of groups, None without aggregation.
    """

    settled: Mapping[int, int]
    size: int
    rows: Callable[[AuditSettings], DataFrame]
    groups: GroupRecords | None = None
