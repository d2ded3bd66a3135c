"""Records and envelopes as a payment flow sends them."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from notification_service.events.format import DecodingSettings
from notification_service.payments.decoding import EnvelopeDecoder
from notification_service.payments.envelope import DataEnvelope
from resequencer.event import Refusal
from resequencer.record import Headers, Origin, Partition, Record

Json = dict[str, Any]
Decode = Callable[..., DataEnvelope | Refusal]


@pytest.fixture
def wire() -> Json:
    """An envelope with all possible parts; tests change the part that they examine."""
    return {
        "processingContext": {"unitOfWorkId": "uow-1", "clientRequestId": "r1"},
        "flow": "PaymentInitiationFlow",
        "sequence": 4,
        "createdAt": "2026-03-28T23:33:55.941Z",
        "mdsObjects": [
            {"uniqueId": "m1", "objectType": "PAIN_001", "object": {"GrpHdr": {"MsgId": "Ü-1"}}},
            {"uniqueId": "m2", "objectType": "PAIN_001_PAYMENT_INSTRUCTION", "object": {}},
            {"uniqueId": "m3", "objectType": "PAIN_001_PAYMENT_TRANSACTION", "object": {}},
        ],
        "pdsObjects": [{"name": "pdsBusinessData", "objectType": "JourneyType", "object": {"value": "PAYMENT"}}],
        "customObjects": [{"uniqueId": "c1", "key": "BusinessData", "value": [1, 2]}],
        "processObjects": [
            {
                "uniqueId": "PaymentFlow|e1|7",
                "objectType": "PROCESS_FLOW_EVENT",
                "object": {"eventName": "PaymentRejected", "processFlowName": "PaymentInitiationFlow", "reasonCode": "AC04"},
            }
        ],
    }


@pytest.fixture
def decode() -> Decode:
    """Decode JSON data or bytes; by default for a strategy that needs a sequence."""

    def decoded(value: object, headers: Headers = (), needs_sequence: bool = True, **fields: Any) -> DataEnvelope | Refusal:
        raw = value if isinstance(value, bytes) else json.dumps(value).encode()
        record = Record(Origin(Partition("in", 0), 7), raw, headers=headers, **fields)
        return EnvelopeDecoder(DecodingSettings(needs_sequence=needs_sequence)).decode(record)

    return decoded
