"""The headers that every notification has, of every handler."""

from typing import NamedTuple

from guardian.headers import (
    ENVELOPE_ID,
    EVENT_NAME,
    LOOKUPS_VERSION,
    NOTIFICATION_ID,
    PROCESS_FLOW_NAME,
    PROCESSING_ENTITY,
    SOURCE_POSITION,
    TRANSACTION_STATUS,
    mark_headers,
)
from notification_service.events.trace_context import trace_headers
from notification_service.payments.envelope import DataEnvelope
from resequencer.handler import UNMARKED, Marks
from resequencer.record import Headers


class About(NamedTuple):
    """What a notification tells: the event, its ISO 20022 status code, and the processing entity if one is known."""

    event_name: str
    process_flow_name: str
    status: str
    entity: str | None


def about_headers(about: About) -> Headers:
    """Return the headers that all notifications about such an event have."""
    return (
        (EVENT_NAME, about.event_name.encode()),
        (PROCESS_FLOW_NAME, about.process_flow_name.encode()),
        (TRANSACTION_STATUS, about.status.encode()),
        *(() if about.entity is None else ((PROCESSING_ENTITY, about.entity.encode()),)),
    )


def contract_headers(message_id: str, envelope: DataEnvelope, about: Headers, marks: Marks, group: Headers = ()) -> Headers:
    """Return the headers of a notification, in the order of docs/contract.md, section 6.

    `about` are those about its event, `group` those about its group.
    """
    record = envelope.record
    headers = (
        (NOTIFICATION_ID, message_id.encode()),
        (ENVELOPE_ID, envelope.envelope_id.encode()),
        (SOURCE_POSITION, str(record.origin).encode()),
        *about,
        *group,
    )
    if marks is not UNMARKED:
        headers += mark_headers(marks.incomplete, is_late=marks.late, is_ordered=marks.ordered)
    return headers + trace_headers(record.headers) if record.headers else headers


def version_headers(version: str | None) -> Headers:
    """Return the header with the version of the lookups; no header without lookups."""
    return () if version is None else ((LOOKUPS_VERSION, version.encode()),)
