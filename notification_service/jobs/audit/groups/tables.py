"""The rows of facts, reports and notifications as tables of Arrow."""

import pyarrow as pa

from notification_service.jobs.audit.groups.rows import FactRow, NotifiedRow, ReportRow

_KINDS = {int: pa.int64(), str: pa.string(), bool: pa.bool_()}


def _schema(row: type) -> pa.Schema:
    """Return the columns of a row's fields. The kind of a field that may be None is the other one."""
    kinds = ((name, getattr(kind, "__args__", (kind,))[0]) for name, kind in row.__annotations__.items())
    return pa.schema([(name, _KINDS[kind]) for name, kind in kinds])


FACT, REPORT, NOTIFIED = map(_schema, (FactRow, ReportRow, NotifiedRow))
