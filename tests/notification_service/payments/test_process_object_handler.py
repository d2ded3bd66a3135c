import json
import tracemalloc
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from notification_service.payments.settings import HandlerSettings
from resequencer.errors import TooLarge
from resequencer.handler import Handled, Marks
from resequencer.notification import notification_id

FLOW = "PaymentInitiationFlow"


def names(handled: Handled) -> list[list[str]]:
    return [[name for name, _ in each.headers] for each in handled.notifications]


def test_each_process_object_makes_a_notification_of_its_own_in_their_order(
    handle: Callable[..., Handled], envelope: Callable[..., Any], data_of: Callable[..., Any]
) -> None:
    came = envelope(("PaymentReceived", FLOW, None), ("PaymentAccepted", FLOW, None))
    handled = handle(came, data_of())
    assert [each.status for each in handled.notifications] == ["RCVD", "ACCP"]
    assert [each.notification_id for each in handled.notifications] == [
        notification_id("uow-1", "PaymentFlow|e0", n) for n in (0, 1)
    ]
    assert {each.unit for each in handled.notifications} == {"uow-1"}
    assert {each.origin for each in handled.notifications} == {came.record.origin}
    assert handled.unmatched == 0


def test_the_message_id_is_the_notification_id(
    handle: Callable[..., Handled], envelope: Callable[..., Any], data_of: Callable[..., Any]
) -> None:
    (notification,) = handle(envelope(("PaymentReceived", FLOW, None)), data_of()).notifications
    assert json.loads(notification.value)["CstmrPmtStsRpt"]["GrpHdr"]["MsgId"] == notification.notification_id
    assert dict(notification.headers)["notification-id"].decode() == notification.notification_id


def test_an_event_without_a_row_makes_no_notification_is_counted_and_keeps_its_index(
    handle: Callable[..., Handled], envelope: Callable[..., Any], data_of: Callable[..., Any]
) -> None:
    came = envelope(
        (None, None, None), ("PaymentAccepted", "OtherFlow", None), ("Nothing", FLOW, None), ("PaymentAccepted", FLOW, None)
    )
    handled = handle(came, data_of())
    assert handled.unmatched == 3
    assert [each.notification_id for each in handled.notifications] == [notification_id("uow-1", "PaymentFlow|e0", 3)]


def test_an_event_without_a_row_does_not_care_about_unreadable_payment_data(
    handle: Callable[..., Handled], envelope: Callable[..., Any], data_of: Callable[..., Any]
) -> None:
    assert handle(envelope(("Nothing", FLOW, None)), data_of(b"{")) == Handled((), 1)


def test_an_envelope_without_process_objects_leads_to_nothing(
    handle: Callable[..., Handled], envelope: Callable[..., Any], data_of: Callable[..., Any]
) -> None:
    assert handle(envelope(), data_of()) == Handled()


def test_the_headers_are_those_of_the_contract_in_its_order(
    handle: Callable[..., Handled], envelope: Callable[..., Any], data_of: Callable[..., Any]
) -> None:
    came = envelope(("PaymentAccepted", FLOW, None))
    (notification,) = handle(came, data_of(), marks=Marks("PAIN_001,customData:BüsinessData", late=True)).notifications
    assert notification.headers == (
        ("notification-id", notification.notification_id.encode()),
        ("envelope-id", b"PaymentFlow|e0"),
        ("source-position", b"IPF_PROCESSING_DATA-3@42"),
        ("event-name", b"PaymentAccepted"),
        ("process-flow-name", b"PaymentInitiationFlow"),
        ("transaction-status", b"ACCP"),
        ("incomplete", "PAIN_001,customData:BüsinessData".encode()),
        ("late", b"true"),
    )


def test_the_processing_entity_is_a_header_where_the_envelope_names_one(
    handle: Callable[..., Handled], envelope: Callable[..., Any], data_of: Callable[..., Any]
) -> None:
    came = msgspec.structs.replace(envelope(("PaymentAccepted", FLOW, None)), entity="BÄNK_001")
    (notification,) = handle(came, data_of()).notifications
    assert notification.headers[5:7] == (("transaction-status", b"ACCP"), ("processing-entity", "BÄNK_001".encode()))


def test_incomplete_and_late_are_there_only_where_they_are_true(
    handle: Callable[..., Handled], envelope: Callable[..., Any], data_of: Callable[..., Any]
) -> None:
    came = envelope(("PaymentAccepted", FLOW, None))
    assert names(handle(came, data_of()))[0][6:] == []
    assert names(handle(came, data_of(), marks=Marks("sequence:3")))[0][6:] == ["incomplete"]
    assert names(handle(came, data_of(), marks=Marks(late=True)))[0][6:] == ["late"]


def test_the_same_envelope_again_gives_the_same_notification_but_for_its_creation_time(
    handle: Callable[..., Handled], envelope: Callable[..., Any], data_of: Callable[..., Any], example: Callable[..., Any]
) -> None:
    came, data = envelope(("PaymentRejected", FLOW, "AC04")), data_of(*example())
    (first,), (second,) = (handle(came, data, now=now).notifications for now in (1_000, 2_000))
    assert first.headers == second.headers
    assert first.value.replace(b"00:00:01.000Z", b"00:00:02.000Z") == second.value


def test_an_envelope_that_would_let_out_too_much_is_too_large_before_the_rest_of_it_is_made(
    handle: Callable[..., Handled], envelope: Callable[..., Any], data_of: Callable[..., Any]
) -> None:
    """3 000 events on a payment of 200 KB would make 602 MB."""
    events = [("PaymentAccepted", FLOW, None)] * 1_000
    data = data_of({"GrpHdr": {"MsgId": "M"}, "Unknown": "x" * 200_000})
    tracemalloc.start()
    with pytest.raises(TooLarge, match=r"its process objects \(1000\)") as raised:
        handle(envelope(*events), data, configured=HandlerSettings("produced-report", max_bytes=2_000_000))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert raised.value.reason == "too-large"
    assert peak < 6_000_000


def test_what_is_just_not_too_large_leaves_whole(
    handle: Callable[..., Handled], envelope: Callable[..., Any], data_of: Callable[..., Any]
) -> None:
    came, data = envelope(*[("PaymentAccepted", FLOW, None)] * 10), data_of()
    size = sum(each.size for each in handle(came, data).notifications)
    assert len(handle(came, data, configured=HandlerSettings(max_bytes=size)).notifications) == 10
    with pytest.raises(TooLarge):
        handle(came, data, configured=HandlerSettings(max_bytes=size - 1))
