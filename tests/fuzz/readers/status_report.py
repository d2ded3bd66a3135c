"""Target `status-report`: any accepted payment data gives a notification that is a valid pain.002."""

import json
import warnings
from decimal import Decimal
from functools import cache
from random import Random
from typing import Any

from defusedxml import ElementTree
from fuzz.independent.json import Number, Object, read_json
from fuzz.mutation import mutated
from fuzz.tree_mutation import mutated_tree

from notification_service.events.format import DecodingSettings
from notification_service.payments.decoding import EnvelopeDecoder
from notification_service.payments.envelope import PAIN_001_PARTS
from notification_service.payments.iso20022.codes import STATUS_REASONS
from notification_service.payments.iso20022.pain002_schema import TYPES
from notification_service.payments.iso20022.simple_types import xml_text
from notification_service.payments.notification_settings import NotificationSetting, NotificationSettings, split_information
from notification_service.payments.payment_data import PaymentData
from notification_service.payments.settings import HandlerSettings, make_handler
from notification_service.payments.target_types import TARGET_TYPES
from notification_service.simulator.generate.pain001 import read_payments
from notification_service.simulator.generate.plan import SAMPLES as OUR_SAMPLES
from resequencer.event import Refusal
from resequencer.handler import Marks
from resequencer.record import Origin, Partition, Record
from tests.notification_service.payments.conftest import EXAMPLE, SAMPLES

NOW = 1_774_740_835_941
XSD = SAMPLES / "xsd" / "pain.002.001.10.xsd"
_MAX_DIGITS = 1_000
EVENTS = {"Rejected": "RJCT", "Accepted": "ACCP", "Cancelled": "CANC"}
TOKENS = tuple(b'"%b":' % name.encode() for name in ("GrpHdr", "PmtId", "Amt", "Dbtr", "RmtInf", "Id", "value", "Ccy"))

_decode = EnvelopeDecoder(DecodingSettings(needs_sequence=True)).decode
_words = {"Accepted": split_information("a & b " * 40)}
_rows = [NotificationSetting("F", event, code, "MS03", _words.get(event, ())) for event, code in EVENTS.items()]
_handlers = [make_handler(HandlerSettings(name), NotificationSettings(_rows)) for name in TARGET_TYPES]


def check(data: bytes) -> None:
    """Check four lines: the three bodies of a pain.001, and the reason code of the event.

    * What the decoder accepts can be handled: nothing is raised.
    * The report, rendered as XML, is valid against the XSD (left out where the XSD is not there).
    * It says nothing but what the bodies, the settings and the event say, and a narrative reason is followed by a narrative.
    * The target types report-xml and produced-report hold that very report, and the bodies as they came.
    """
    message, instruction, transfer, reason = (data.split(b"\n") + [b"{}"] * 3)[:4]
    event = sorted(EVENTS)[len(data) % len(EVENTS)]
    envelope = _decode(Record(Origin(Partition("in", 0), 7), _envelope((message, instruction, transfer), event, reason)))
    if isinstance(envelope, Refusal):
        return
    held = PaymentData().absorb(envelope)
    report, rendered, produced = (handler.handle(envelope, held, Marks(), NOW).notifications[0].value for handler in _handlers)
    _check_report(read_json(report), rendered, held, event, envelope.process_objects[0].reason_code)
    _check_produced(produced, report, held)


def _envelope(bodies: tuple[bytes, ...], event: str, reason: bytes) -> bytes:
    parts = zip(PAIN_001_PARTS, bodies, strict=True)
    mds = b",".join(b'{"objectType":"%b","object":%b}' % (name.encode(), body) for name, body in parts)
    fields = {"eventName": event, "processFlowName": "F", "reasonCode": reason.decode("utf-8", "replace")}
    process = json.dumps([{"objectType": "PROCESS_FLOW_EVENT", "object": fields}]).encode()
    return b'{"processingContext":{"unitOfWorkId":"u"},"flow":"F","sequence":1,"processObjects":%b,"mdsObjects":[%b]}' % (
        process,
        mds,
    )


def _check_report(report: Any, rendered: bytes, held: PaymentData, event: str, reason: str | None) -> None:
    if (schema := _find_schema()) is not None:
        errors = [f"{error.path}: {error.reason}" for error in schema.iter_errors(ElementTree.fromstring(rendered))]
        assert not errors, errors
    status = report["CstmrPmtStsRpt"]
    (payment,) = status["OrgnlPmtInfAndSts"]
    (transaction,) = payment["TxInfAndSts"]
    assert transaction["TxSts"] == EVENTS[event]
    (information,) = transaction.pop("StsRsnInf")
    code = information["Rsn"]
    assert code in ({"Cd": reason}, {"Prtry": xml_text(reason or "")}, {"Cd": "MS03"})
    assert reason not in STATUS_REASONS or code == {"Cd": reason}
    assert ("AddtlInf" in information) is (event in _words or reason == "NARR")
    del status["GrpHdr"]["MsgId"], status["GrpHdr"]["CreDtTm"]
    known = {"NOTPROVIDED", "pain.001.001.09", EVENTS[event]}
    for _, body in held.mds:
        known |= _texts(read_json(body))
    texts = _texts(status)
    assert texts <= known, texts - known


def _check_produced(produced: bytes, report: bytes, held: PaymentData) -> None:
    value = read_json(produced)
    assert value["report"] == read_json(report)
    assert value["pain001"] == {name: read_json(body) for name, body in held.mds}


def _texts(value: Any) -> set[str]:
    """Return the texts in the value that a report may contain, and the literals of all numbers."""
    if isinstance(value, Object | list):
        return {text for item in (value.values() if isinstance(value, Object) else value) for text in _texts(item)}
    if isinstance(value, Number):
        number = Decimal(value.literal)
        number = number or number.copy_abs()  # A zero has no sign.
        # In plain digits, where those are few.
        return {value.literal, format(number, "f") if abs(number.adjusted()) <= _MAX_DIGITS else value.literal}
    if isinstance(value, str):
        stripped = value.strip(" \t\r\n")
        return {xml_text(value), stripped, xml_text(stripped)}
    return {"true" if value else "false"} if isinstance(value, bool) else set()


@cache
def _find_schema() -> Any:
    if not XSD.is_file():
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Warnings of xmlschema's own import do not matter here.
        import xmlschema

    return xmlschema.XMLSchema10(XSD)


def mutate(rng: Random, data: bytes, others: list[bytes], tokens: tuple[bytes, ...]) -> bytes:
    """Mostly change the JSON of a body, otherwise blindly."""
    lines = data.split(b"\n")
    at = rng.randrange(len(lines))
    try:
        tree = json.loads(lines[at])
    except (ValueError, RecursionError):
        return mutated(rng, data, others, tokens)
    if rng.random() < 0.2:
        return mutated(rng, data, others, tokens)
    changed = json.dumps(mutated_tree(rng, tree, _NAMES, _SCALARS), ensure_ascii=rng.random() < 0.5)
    lines[at] = changed.encode("utf-8", "surrogatepass")
    return b"\n".join(lines)


_ELEMENTS = {each.name for kind in TYPES.values() for each in getattr(kind, "elements", ())}
_NAMES = sorted(_ELEMENTS | {"BIC", "Ccy", "value", "MsgNmId"})
_SCALARS = (
    *(None, True, False, 0, 1, -1, 10**15, 10**18, 10**30, 0.1, 1e-7, 1e300, "", " ", "\r\n", "\x00", "\ufffe", "&<>\"'", "]]>"),
    *("ü" * 35, "ü" * 36, "x" * 140, "x" * 141, "x" * 2_049, "😀" * 70, "2026-02-29", "2024-02-29Z", "0000-01-01", "0001-01-01"),
    *("9999-12-31+14:00", "2026-03-30T24:00:00", "2026-03-30T10:00:00.1234567890123Z", "-0", "+1.", ".5", "0.00001", "1" * 19),
    *("1" * 13 + "." + "1" * 5, "1e3", "NaN", "٣", "EUR", "eur", "DE", "true", "DEUTDEFF", "DE75512108001245126162", "+49-221"),
    *("CINV", "TRF", "eb6305c9-1f7f-49de-aed0-16487c27b42d", [], {}, [[]], {"value": "x"}, {"Ccy": "EUR", "value": "1"}),
)


def seeds() -> list[bytes]:
    """Yield our samples' payments, and one that uses most of the schema."""
    payments = [(each.initiation, each.instruction, each.transaction) for file in OUR_SAMPLES for each in read_payments(file)]
    rich = [json.dumps(part).encode() for part in EXAMPLE]
    return [b"\n".join((*bodies, reason)) for bodies in (*payments, rich, rich) for reason in (b"AC04", b"NARR", b"own & odd")]
