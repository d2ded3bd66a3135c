"""What the service says of a payment is what a group reads, and its report repeats what the notification did."""

import json
from io import StringIO

from harness.kept_values import KeptValues
from msgspec.structs import replace

from guardian.headers import texts_of
from notification_service.aggregation.core import Completion, Processor
from notification_service.aggregation.payments.payments_of_message import PaymentsOfMessage, PaymentsSettings
from notification_service.payments.notification_settings import parse_notification_settings
from notification_service.payments.settings import HandlerSettings, make_handler
from resequencer.handler import Marks
from resequencer.record import Origin, Partition, Record
from tests.notification_service.payments.conftest import EXAMPLE, NOW, SETTINGS_FILE, envelope_of, payment_data


def test_a_fact_of_the_service_completes_the_group_of_its_payment() -> None:
    settings = parse_notification_settings(StringIO(SETTINGS_FILE.read_text(encoding="utf-8")), "settings")
    envelope = replace(envelope_of(("PaymentSettled", "PaymentInitiationFlow", None)), entity="BÄNK_001")
    made = make_handler(HandlerSettings(makes_facts=True), settings).handle(envelope, payment_data(*EXAMPLE), Marks(), NOW)
    (fact,), (notification,) = made.facts, made.notifications

    processor = Processor(PaymentsOfMessage(PaymentsSettings(final_statuses=frozenset({notification.status}))))
    record = Record(Origin(Partition("facts", 0), 1), fact.value, fact.key.encode(), fact.headers)
    (completion,) = processor.apply(KeptValues(), [record], NOW).output

    assert isinstance(completion, Completion)
    headers, of_notification = texts_of(completion.headers), texts_of(notification.headers)
    for name in ("group-id", "group-total", "processing-entity"):
        assert headers[name] == of_notification[name]
    report, single = json.loads(completion.value)["CstmrPmtStsRpt"], json.loads(notification.value)["CstmrPmtStsRpt"]
    assert report["GrpHdr"]["InitgPty"] == single["GrpHdr"]["InitgPty"]
    counted = [{"DtldNbOfTxs": "1", "DtldSts": notification.status, "DtldCtrlSum": "12.50"}]
    assert report["OrgnlGrpInfAndSts"] == single["OrgnlGrpInfAndSts"] | {"NbOfTxsPerSts": counted}
