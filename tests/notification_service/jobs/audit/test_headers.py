"""The audit compares headers, and not the trace context among them."""

import pytest

from notification_service.jobs.audit.finding import Deviation
from notification_service.jobs.audit.observed import likeness_of, observe
from notification_service.jobs.audit.unit_audit import differences
from resequencer.notification import Notification
from resequencer.record import Headers, Origin, Partition

HEADERS: Headers = (("notification-id", b"N1"), ("source-position", b"T-0@17"), ("event-name", b"PaymentReceived"))
TRACE: Headers = (("traceparent", b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"), ("tracestate", b"a=1"))
VALUE = b'{"CstmrPmtStsRpt": {}}'


def test_a_notification_is_observed_as_the_same_with_and_without_a_trace_context():
    with_trace, without = observe((*HEADERS, *TRACE), VALUE, 0), observe(HEADERS, VALUE, 0)
    assert with_trace == without
    assert with_trace is not None
    expected = Notification("N1", "u", "RCVD", VALUE, (*HEADERS, *TRACE), Origin(Partition("T", 0), 17))
    assert likeness_of(expected) == with_trace.likeness


@pytest.mark.parametrize("headers", [(*HEADERS[:2], ("event-name", b"Other")), HEADERS[:2], (*HEADERS, ("channel", b"a"))])
def test_another_a_missing_and_an_added_header_are_deviations(headers: Headers) -> None:
    expected, seen = observe(HEADERS, VALUE, 0), observe(headers, VALUE, 0)
    assert expected is not None
    assert seen is not None
    assert [kind for kind, _ in differences(expected, seen)] == [Deviation.WRONG_HEADERS]
    assert expected.likeness != seen.likeness
