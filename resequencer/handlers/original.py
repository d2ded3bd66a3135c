"""The parts of the original payment that a status report repeats, and its customer. Made once per payment data and cached."""

import msgspec

from enrichment.shapes import CustomerValue
from resequencer.handlers.agents import Agents
from resequencer.handlers.customers import find_customer
from resequencer.handlers.enrichment import Enrichment
from resequencer.handlers.iso20022.pain001_parts import INSTRUCTION, MESSAGE, TRANSACTION
from resequencer.handlers.iso20022.part_reader import Fields, PartReader
from resequencer.handlers.iso20022.simple_types import NOT_PROVIDED
from resequencer.handlers.membership import NO_MEMBERSHIP, Membership, membership_of
from resequencer.payment_data import Bodies, PaymentData

DEFAULT_MESSAGE_NAME = "pain.001.001.09"
KEPT_PAYMENTS = 4_096
KEPT_BYTES = 32 * 1024 * 1024
LARGEST_KEPT_BYTES = 16 * 1024
"""The largest raw payment that is cached. Larger payments are processed each time. The originals take about as much memory again;
`KEPT_BYTES` does not include them."""

_OBJECT_BYTES = 160
"""The memory of an MDS object beside its name and its body."""

_encode = msgspec.json.Encoder().encode
_decode_fields = msgspec.json.Decoder(Fields).decode
_read_text = msgspec.json.Decoder(str).decode
_NOT_PROVIDED = msgspec.Raw(_encode(NOT_PROVIDED))
_DEFAULT_MESSAGE_NAME = msgspec.Raw(_encode(DEFAULT_MESSAGE_NAME))
_NOTHING: Fields = {}


class Original(msgspec.Struct, frozen=True, gc=False):
    """The parts of a report that depend only on payment data: encoded members of JSON objects, without the braces.

    `group` belongs to OrgnlGrpInfAndSts, `instruction` to OrgnlPmtInfAndSts; they are never empty. `initiating_party` is the end
    of GrpHdr, `transaction` the beginning and `reference` the end of TxInfAndSts. Each of these three is empty or includes the
    comma to the other members. `is_single` is true if the original message has one transaction. `customer` comes from the
    lookups. `membership` is empty unless facts are made.
    """

    initiating_party: bytes
    group: bytes
    is_single: bool
    instruction: bytes
    transaction: bytes
    reference: bytes
    customer: CustomerValue | None = None
    membership: Membership = NO_MEMBERSHIP


class Originals:
    """Makes originals, and caches the latest by the raw bodies of a payment's MDS objects.

    With `for_facts` they have the membership of the payment.
    """

    def __init__(self, enrichment: Enrichment, *, for_facts: bool = False) -> None:
        self._enrichment = enrichment
        self._for_facts = for_facts
        self._agents = Agents(enrichment)
        self._kept: dict[Bodies, Original] = {}
        self._kept_bytes = 0

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, data: PaymentData) -> Original:
        """Return the original of a payment. Missing fields are left out, or NOTPROVIDED if the schema requires them.

        Raises:
            PermanentError: A body is not JSON, not UTF-8, or nested too deep to be read.
        """
        kept = self._kept.get(data.mds)
        if kept is not None:
            return kept
        made = _make(data, self._enrichment, self._agents, for_facts=self._for_facts)
        self._keep(data.mds, made)
        return made

    def _keep(self, bodies: Bodies, made: Original) -> None:
        size = _size(bodies)
        if size > LARGEST_KEPT_BYTES:
            return
        while self._kept and (len(self._kept) >= KEPT_PAYMENTS or self._kept_bytes + size > KEPT_BYTES):
            earliest = next(iter(self._kept))
            self._kept_bytes -= _size(earliest)
            del self._kept[earliest]
        self._kept_bytes += size
        self._kept[bodies] = made


def _size(bodies: Bodies) -> int:
    return sum([len(name) + len(body) + _OBJECT_BYTES for name, body in bodies])


def _make(data: PaymentData, enrichment: Enrichment, agents: Agents, *, for_facts: bool) -> Original:
    message = _read(MESSAGE, data)
    header = _fields_of(message, "GrpHdr")
    payment = _read(INSTRUCTION, data)
    transfer = _read(TRANSACTION, data)
    number = header.get("NbOfTxs")
    party = _members(InitgPty=header.get("InitgPty"))
    identification = _original_identification(_fields_of(transfer, "PmtId"))
    is_enriched = enrichment.version is not None
    if is_enriched:
        payment, transfer = _with_agents(payment, transfer, agents)
    reference = _original_reference(payment, transfer)
    group, instruction = _original_group(message, header), _original_instruction(payment)
    return Original(
        initiating_party=b"," + party if party else b"",
        group=group,
        is_single=number is not None and int(_read_text(number)) == 1,
        instruction=instruction,
        transaction=identification + b"," if identification else b"",
        reference=b',"OrgnlTxRef":{%b}' % reference if reference else b"",
        customer=find_customer(header.get("InitgPty"), payment.get("DbtrAcct"), enrichment) if is_enriched else None,
        membership=membership_of(header, transfer.get("Amt"), group, instruction) if for_facts else NO_MEMBERSHIP,
    )


def _with_agents(payment: Fields, transfer: Fields, agents: Agents) -> tuple[Fields, Fields]:
    debtors = agents.filled(payment.get("DbtrAgt"), payment.get("DbtrAcct"))
    creditors = agents.filled(transfer.get("CdtrAgt"), transfer.get("CdtrAcct"))
    return (
        payment if debtors is None else payment | {"DbtrAgt": debtors},
        transfer if creditors is None else transfer | {"CdtrAgt": creditors},
    )


def _read(reader: PartReader, data: PaymentData) -> Fields:
    body = data.find_mds(reader.object_type)
    return _NOTHING if body is None else reader.read(body)


def _fields_of(fields: Fields, name: str) -> Fields:
    value = fields.get(name)
    return _NOTHING if value is None else _decode_fields(value)


def _original_group(message: Fields, header: Fields) -> bytes:
    return _members(
        OrgnlMsgId=header.get("MsgId", _NOT_PROVIDED),
        OrgnlMsgNmId=message.get("MsgNmId") or header.get("MsgNmId") or _DEFAULT_MESSAGE_NAME,
        OrgnlCreDtTm=header.get("CreDtTm"),
        OrgnlNbOfTxs=header.get("NbOfTxs"),
        OrgnlCtrlSum=header.get("CtrlSum"),
    )


def _original_instruction(payment: Fields) -> bytes:
    return _members(
        OrgnlPmtInfId=payment.get("PmtInfId", _NOT_PROVIDED),
        OrgnlNbOfTxs=payment.get("NbOfTxs"),
        OrgnlCtrlSum=payment.get("CtrlSum"),
    )


def _original_identification(ids: Fields) -> bytes:
    return _members(OrgnlInstrId=ids.get("InstrId"), OrgnlEndToEndId=ids.get("EndToEndId"), OrgnlUETR=ids.get("UETR"))


def _original_reference(payment: Fields, transfer: Fields) -> bytes:
    """Encode OrgnlTxRef. A field that exists on both levels is taken from the transaction, else from the instruction."""
    return _members(
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


def _party(value: msgspec.Raw | None) -> dict[str, msgspec.Raw] | None:
    return None if value is None else {"Pty": value}


def _members(**fields: object) -> bytes:
    """Encode the fields that are not None as the members of a JSON object, without its braces."""
    return _encode({name: value for name, value in fields.items() if value is not None})[1:-1]
