"""The audit does not compare the trace context: outputs of versions that did not repeat it are no deviation."""

from domain.notification import Notification
from domain.record import Headers, Origin, Partition
from pipeline.audit.observed import likeness_of, observe

HEADERS: Headers = (("notification-id", b"N1"), ("source-position", b"T-0@17"), ("event-name", b"PaymentReceived"))
TRACE: Headers = (("traceparent", b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"), ("tracestate", b"a=1"))
VALUE = b'{"CstmrPmtStsRpt": {}}'


def test_a_notification_is_observed_as_the_same_with_and_without_a_trace_context():
    with_trace, without = observe((*HEADERS, *TRACE), VALUE, 0), observe(HEADERS, VALUE, 0)
    assert with_trace == without
    assert with_trace is not None
    expected = Notification("N1", "u", "RCVD", VALUE, (*HEADERS, *TRACE), Origin(Partition("T", 0), 17))
    assert likeness_of(expected) == with_trace.likeness


def test_another_header_still_makes_a_difference():
    one, other = observe((*HEADERS, ("channel", b"a")), VALUE, 0), observe((*HEADERS, ("channel", b"b")), VALUE, 0)
    assert one is not None
    assert other is not None
    assert (one.headers, one.likeness) != (other.headers, other.likeness)
    assert one.likeness != other.likeness
