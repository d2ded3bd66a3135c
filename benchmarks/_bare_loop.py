"""The service's work as one plain loop over dicts: no actors, durability or deadlines, and no state that outlives the loop.

For each line the loop decodes the envelope with its digest, and detects duplicates by envelope id. It orders each unit by the
rule of SEQUENCE, and looks the events up in the settings. It builds the pain.002 as plain dicts, with the same fields of the
original payment as the service, and encodes the output line. Only the formatting of ids and instants is the service's own code.

`read` is the decoder: `checked` is the service's, which refuses whatever is no envelope; `trusting` is msgspec alone, which
checks nothing and fails on the first wrong byte. Neither loop has dead letters, limits, or a report that is conformed to the
schema. On valid input the output is that of the worker, except for the instant of handling and the numbers; `throughput.py`
compares the two.
"""

import csv
from collections.abc import Callable, Iterable, Iterator
from hashlib import blake2b
from pathlib import Path
from time import time_ns
from typing import Any

import msgspec
from msgspec import Raw

from notification_service.connectors.line_format import Line, decode_line
from notification_service.events.format import DecodingSettings
from notification_service.payments.decoding import EnvelopeDecoder
from notification_service.payments.envelope import DataEnvelope, MdsObject, ProcessObject
from resequencer.clock import instant_text
from resequencer.notification import notification_id
from resequencer.record import Origin, Partition, Record

SETTINGS = Path(__file__).parents[1] / "conf" / "notification-settings.csv"
GROUP_STATUSES = frozenset(["ACCC", "ACCP", "ACSC", "ACSP", "ACTC", "PDNG", "RCVD", "RJCT"])
LINES_PER_INSTANT = 500
"""How many lines share one reading of the clock: as many as a worker's poll."""

Read = Callable[[bytes, Origin], DataEnvelope]


class Unit:
    """The loop's state of a unit."""

    __slots__ = ("data", "expected", "observed", "original", "seen", "stash")

    def __init__(self) -> None:
        self.seen: dict[str, bytes] = {}
        self.expected = 1
        self.observed: dict[str, int] = {}
        self.stash: dict[int, DataEnvelope] = {}
        self.data: dict[str, bytes] = {}
        self.original: tuple[Any, ...] | None = None


def bare_loop(lines: Iterable[bytes], partition: Partition, read: Read) -> Iterator[bytes]:
    """Yield the output lines in order."""
    settings = _read_settings()
    units: dict[str, Unit] = {}
    offset = number = 0
    now = ""
    for count, line in enumerate(lines):
        if count % LINES_PER_INSTANT == 0:
            now = instant_text(time_ns() // 1_000_000)
        envelope = read(line, Origin(partition, offset))
        offset += len(line)
        unit = units.get(envelope.unit)
        if unit is None:
            unit = units[envelope.unit] = Unit()
        if unit.seen.setdefault(envelope.envelope_id, envelope.digest) is not envelope.digest:
            continue
        unit.stash[envelope.sequence or 0] = envelope
        for handled in _in_order(unit):
            for index, event in enumerate(handled.process_objects):
                row = settings.get((event.process_flow_name, event.event_name))
                if row is not None:
                    number += 1
                    identifier = notification_id(handled.unit, handled.envelope_id, index)
                    report = _report(unit, identifier, now, row, event.reason_code)
                    yield _line(handled, identifier, event, row[0], f"{partition}#{number}", report)


def _read_settings() -> dict[tuple[str | None, str | None], tuple[str, str]]:
    with SETTINGS.open(encoding="utf-8") as file:
        rows = csv.DictReader(file)
        return {(row["process_flow_name"], row["event_name"]): (row["transaction_status"], row["reason_code"]) for row in rows}


def _in_order(unit: Unit) -> Iterator[DataEnvelope]:
    """Yield the envelopes that have become acceptable, and take over their data."""
    while unit.stash:
        lowest = min(unit.stash)
        envelope = unit.stash[lowest]
        last = unit.observed.get(envelope.flow, 0)
        if lowest > unit.expected and lowest > last + 1:
            return
        del unit.stash[lowest]
        if lowest > last:
            unit.observed[envelope.flow] = lowest
            unit.expected += 1
        for mds in envelope.mds_objects:
            unit.data[mds.object_type] = mds.body
            unit.original = None
        for pds in envelope.pds_objects:
            unit.data[f"pds:{pds.name}"] = pds.body
        for custom in envelope.custom_objects:
            unit.data[f"custom:{custom.key}"] = custom.body
        yield envelope


def _line(envelope: DataEnvelope, identifier: str, event: ProcessObject, status: str, number: str, report: bytes) -> bytes:
    headers = {
        "notification-id": identifier,
        "envelope-id": envelope.envelope_id,
        "source-position": str(envelope.record.origin),
        "event-name": event.event_name,
        "process-flow-name": event.process_flow_name,
        "transaction-status": status,
    }
    if envelope.processing_entity is not None:
        headers["processing-entity"] = envelope.processing_entity
    return _encode({"key": envelope.unit, "headers": headers, "value": Raw(report), "number": number}) + b"\n"


# The report


def _report(unit: Unit, identifier: str, now: str, row: tuple[str, str], reason_code: str | None) -> bytes:
    if unit.original is None:
        unit.original = _original(unit.data)
    status, reason = row
    party, group, is_single, instruction, transaction, reference = unit.original
    if is_single and status in GROUP_STATUSES:
        group = group | {"GrpSts": status}
    transaction = transaction | {"TxSts": status}
    if reason:
        transaction["StsRsnInf"] = [{"Rsn": {"Cd": reason_code or reason}}]
    return _encode(
        {
            "CstmrPmtStsRpt": {
                "GrpHdr": {"MsgId": identifier, "CreDtTm": now} | party,
                "OrgnlGrpInfAndSts": group,
                "OrgnlPmtInfAndSts": [instruction | {"TxInfAndSts": [transaction | reference]}],
            }
        }
    )


def _original(data: dict[str, bytes]) -> tuple[Any, ...]:
    """Return the fields of the payment that the report repeats, computed once per payment data."""
    header = _body(data, "PAIN_001").get("GrpHdr", {})
    payment = _body(data, "PAIN_001_PAYMENT_INSTRUCTION")
    transfer = _body(data, "PAIN_001_PAYMENT_TRANSACTION")
    ids = transfer.get("PmtId", {})
    group = _present(
        OrgnlMsgId=header.get("MsgId", "NOTPROVIDED"),
        OrgnlMsgNmId="pain.001.001.09",
        OrgnlCreDtTm=header.get("CreDtTm"),
        OrgnlNbOfTxs=header.get("NbOfTxs"),
        OrgnlCtrlSum=header.get("CtrlSum"),
    )
    instruction = _present(
        OrgnlPmtInfId=payment.get("PmtInfId", "NOTPROVIDED"),
        OrgnlNbOfTxs=payment.get("NbOfTxs"),
        OrgnlCtrlSum=payment.get("CtrlSum"),
    )
    transaction = _present(OrgnlInstrId=ids.get("InstrId"), OrgnlEndToEndId=ids.get("EndToEndId"), OrgnlUETR=ids.get("UETR"))
    reference = _reference(payment, transfer)
    party = _present(InitgPty=header.get("InitgPty"))
    return party, group, header.get("NbOfTxs") == "1", instruction, transaction, {"OrgnlTxRef": reference} if reference else {}


def _reference(payment: dict[str, Any], transfer: dict[str, Any]) -> dict[str, Any]:
    return _present(
        Amt=transfer.get("Amt"),
        ReqdExctnDt=payment.get("ReqdExctnDt"),
        PmtTpInf=transfer.get("PmtTpInf") or payment.get("PmtTpInf"),
        PmtMtd=payment.get("PmtMtd"),
        RmtInf=transfer.get("RmtInf"),
        UltmtDbtr=_party(transfer.get("UltmtDbtr") or payment.get("UltmtDbtr")),
        Dbtr=_party(payment.get("Dbtr")),
        DbtrAcct=payment.get("DbtrAcct"),
        DbtrAgt=payment.get("DbtrAgt"),
        DbtrAgtAcct=payment.get("DbtrAgtAcct"),
        CdtrAgt=transfer.get("CdtrAgt"),
        CdtrAgtAcct=transfer.get("CdtrAgtAcct"),
        Cdtr=_party(transfer.get("Cdtr")),
        CdtrAcct=transfer.get("CdtrAcct"),
        UltmtCdtr=_party(transfer.get("UltmtCdtr")),
        Purp=transfer.get("Purp"),
    )


def _body(data: dict[str, bytes], object_type: str) -> dict[str, Any]:
    body = data.get(object_type)
    return {} if body is None else _read_body(body)


def _party(value: Any) -> Any:
    return None if value is None else {"Pty": value}


def _present(**fields: Any) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


# The two decoders

_decoder = EnvelopeDecoder(DecodingSettings(needs_sequence=True))


def checked(line: bytes, origin: Origin) -> DataEnvelope:
    read = decode_line(line)
    assert isinstance(read, Line)
    envelope = _decoder.decode(Record(origin, read.value, read.key, read.headers))
    assert isinstance(envelope, DataEnvelope)
    return envelope


class _Line(msgspec.Struct, gc=False):
    value: Raw
    key: str
    headers: dict[str, str] | None = None


class _Context(msgspec.Struct, rename="camel", gc=False):
    unit_of_work_id: str
    processing_entity: str | None = None


class _Object(msgspec.Struct, rename="camel", gc=False):
    object: Raw = Raw(b"null")
    unique_id: str | None = None
    object_type: str = ""
    name: str = ""
    key: str = ""
    value: Raw = Raw(b"null")


class _Event(msgspec.Struct, rename="camel", gc=False):
    event_name: str
    process_flow_name: str
    reason_code: str | None = None


class _Envelope(msgspec.Struct, rename="camel", gc=False):
    processing_context: _Context
    flow: str
    sequence: int
    mds_objects: list[_Object] = []
    pds_objects: list[_Object] = []
    custom_objects: list[_Object] = []
    process_objects: list[_Object] = []


_read_line = msgspec.json.Decoder(_Line).decode
_read_envelope = msgspec.json.Decoder(_Envelope).decode
_read_event = msgspec.json.Decoder(_Event).decode
_read_body = msgspec.json.Decoder(float_hook=str).decode
_encode = msgspec.json.Encoder().encode
_pack = msgspec.msgpack.Encoder().encode


def trusting(line: bytes, origin: Origin) -> DataEnvelope:
    read = _read_line(line)
    each = _read_envelope(read.value)
    flow, sequence = each.flow, each.sequence
    bodies = [(one.object_type, bytes(one.object)) for one in each.mds_objects + each.pds_objects + each.process_objects]
    others = [(one.key, bytes(one.value)) for one in each.custom_objects]
    digest = blake2b(_pack((flow, sequence, bodies, others)), digest_size=8).digest()
    envelope_id = (each.process_objects[0].unique_id if each.process_objects else None) or f"{flow}#{sequence}"
    mds = tuple([MdsObject(_NAMES.get(one.object_type, one.object_type), bytes(one.object)) for one in each.mds_objects])
    events = tuple([_as_event(one) for one in each.process_objects])
    context = each.processing_context
    ids = (context.unit_of_work_id, flow, sequence, envelope_id)
    of_engine = (Record(origin, b""), (), 0, context.processing_entity, None, None)
    return DataEnvelope(*ids, b"", digest, *of_engine, mds, (), (), events)


def _as_event(one: _Object) -> ProcessObject:
    event = _read_event(one.object)
    return ProcessObject(one.unique_id, one.object_type, event.event_name, event.process_flow_name, event.reason_code, b"")


_NAMES = {"PAIN_001_CREDIT_TRANSFER_TRANSACTION": "PAIN_001_PAYMENT_TRANSACTION"}
