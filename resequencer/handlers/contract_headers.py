"""The headers that every notification has, of every handler."""

from domain.envelope import DataEnvelope
from domain.headers import (
    ENVELOPE_ID,
    EVENT_NAME,
    LOOKUPS_VERSION,
    NOTIFICATION_ID,
    PROCESS_FLOW_NAME,
    SOURCE_POSITION,
    mark_headers,
)
from domain.record import Headers
from domain.trace_context import trace_headers
from resequencer.handlers.port import Marks


def contract_headers(message_id: str, envelope: DataEnvelope, event_name: str, flow_name: str, marks: Marks) -> Headers:
    """Return the headers of a notification, in the order of docs/contract.md, section 6."""
    return (
        (NOTIFICATION_ID, message_id.encode()),
        (ENVELOPE_ID, envelope.envelope_id.encode()),
        (SOURCE_POSITION, str(envelope.record.origin).encode()),
        (EVENT_NAME, event_name.encode()),
        (PROCESS_FLOW_NAME, flow_name.encode()),
        *mark_headers(marks.incomplete, is_late=marks.late, is_ordered=marks.ordered),
        *trace_headers(envelope.record.headers),
    )


def version_headers(version: str | None) -> Headers:
    """Return the header with the version of the lookups; no header without lookups."""
    return () if version is None else ((LOOKUPS_VERSION, version.encode()),)
