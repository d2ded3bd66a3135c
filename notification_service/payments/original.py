"""The parts of the original payment that a status report repeats, and its customer. Made once per payment data and cached.

Nothing is mandatory here: a report replaces missing mandatory fields by NOTPROVIDED.
"""

from functools import lru_cache
from typing import Any, Final

import msgspec
from msgspec import UNSET
from msgspec.structs import replace

from notification_service.lookups.shapes import CustomerValue, InstitutionValue
from notification_service.payments.enrichment import Enrichment, find_customer
from notification_service.payments.envelope import PAIN_001, PAYMENT_INSTRUCTION, PAYMENT_TRANSACTION
from notification_service.payments.facts import NO_MEMBERSHIP, Membership, membership_of
from notification_service.payments.iso20022.complex_types import Sequence
from notification_service.payments.iso20022.pain002_schema import TYPES
from notification_service.payments.iso20022.part_reader import Fields, PartReader, is_plain
from notification_service.payments.iso20022.schema_notation import Schema
from notification_service.payments.iso20022.simple_types import NOT_PROVIDED
from notification_service.payments.payment_data import Bodies, PaymentData

_type = TYPES["BranchAndFinancialInstitutionIdentification6"]
assert isinstance(_type, Sequence)
_AGENT = PartReader("an agent", _type)
_KEPT = 4_096
_LARGEST_KEPT_BYTES = 1_024
"""The largest encoded agent that is cached. A bank with code, name and address has some 300 bytes; the schema allows 10 000."""

_encode = msgspec.json.Encoder().encode


class _AccountId(msgspec.Struct, gc=False):
    IBAN: str | None = None


class _Account(msgspec.Struct, gc=False):
    Id: _AccountId | None = None


_read_account = msgspec.json.Decoder(_Account).decode
_read_agent = msgspec.json.Decoder(dict[str, dict[str, Any]]).decode


class Agents:
    """Completes agents from the lookups of one version. Caches the results, because payments name the same few banks."""

    def __init__(self, enrichment: Enrichment) -> None:
        self._enrichment = enrichment
        self._named = lru_cache(_KEPT)(self._find_named)
        self._agent_of = lru_cache(_KEPT)(_agent_of)

    def filled(self, agent: msgspec.Raw | None, account: msgspec.Raw | None) -> msgspec.Raw | None:
        """Return the completed agent of an account. Both arguments are valid under the schema.

        An agent that is missing or NOTPROVIDED becomes the account's institution, found by the IBAN. An agent with a BIC and
        without a name gets the name.
        """
        if agent is None:
            named: bytes | None = b""
        else:
            find = self._named if len(agent) <= _LARGEST_KEPT_BYTES else self._find_named
            named = find(bytes(agent))
        if named is not None:
            return msgspec.Raw(named) if named else self._institution_of(account) or agent
        return agent

    def _find_named(self, agent: bytes) -> bytes | None:
        """Return the agent with its name. None if the agent stays as it is, empty bytes if it has no identity."""
        institution = _read_agent(agent).get("FinInstnId", {})
        if not institution or _is_not_provided(institution):
            return b""
        if "Nm" in institution or "BICFI" not in institution:
            return None
        found = self._enrichment.find_by_bic(institution["BICFI"])
        return None if found is None else _encoded(institution | {"Nm": found.name}, _read_agent(agent).get("BrnchId"))

    def _institution_of(self, account: msgspec.Raw | None) -> msgspec.Raw | None:
        iban = find_iban(account)
        found = None if iban is None else self._enrichment.find_by_iban(iban)
        return None if found is None else self._agent_of(found)


def find_iban(account: msgspec.Raw | None) -> str | None:
    identity = None if account is None else _read_account(account).Id
    return None if identity is None else identity.IBAN


def _is_not_provided(institution: dict[str, Any]) -> bool:
    """Whether the agent is SEPA's placeholder for an unnamed agent: `Othr/Id` NOTPROVIDED."""
    return institution.keys() == {"Othr"} and institution["Othr"].get("Id") == NOT_PROVIDED


def _agent_of(institution: InstitutionValue) -> msgspec.Raw | None:
    encoded = _encoded({"BICFI": institution.bic, "Nm": institution.name})
    return None if encoded is None else msgspec.Raw(encoded)


def _encoded(institution: dict[str, Any], branch: dict[str, Any] | None = None) -> bytes | None:
    """Encode an agent without the parts that the schema refuses; None if nothing is left."""
    body = _encode({"FinInstnId": institution} | ({} if branch is None else {"BrnchId": branch}))
    valid = _AGENT.find_valid(body) or _AGENT.conformed(body)
    return None if valid == b"{}" else bytes(valid)


_schema = Schema(TYPES.values())
_sequence = _schema.sequence

_sequence(
    "GrpHdr",
    *("MsgId? Max35Text", "MsgNmId? Max35Text", "CreDtTm? ISODateTime", "NbOfTxs? Max15NumericText"),
    *("CtrlSum? DecimalNumber", "InitgPty? PartyIdentification135"),
)
MESSAGE: Final = PartReader(PAIN_001, _sequence("Message", "MsgNmId? Max35Text", "GrpHdr? GrpHdr"))
INSTRUCTION: Final = PartReader(
    PAYMENT_INSTRUCTION,
    _sequence(
        "PmtInf",
        *("PmtInfId? Max35Text", "PmtMtd? PaymentMethod4Code", "NbOfTxs? Max15NumericText", "CtrlSum? DecimalNumber"),
        *("PmtTpInf? PaymentTypeInformation27", "ReqdExctnDt? DateAndDateTime2Choice", "Dbtr? PartyIdentification135"),
        *("DbtrAcct? CashAccount38", "DbtrAgt? BranchAndFinancialInstitutionIdentification6", "DbtrAgtAcct? CashAccount38"),
        "UltmtDbtr? PartyIdentification135",
    ),
)
_sequence("PmtId", "InstrId? Max35Text", "EndToEndId? Max35Text", "UETR? UUIDv4Identifier")
TRANSACTION: Final = PartReader(
    PAYMENT_TRANSACTION,
    _sequence(
        "CdtTrfTxInf",
        *("PmtId? PmtId", "PmtTpInf? PaymentTypeInformation27", "Amt? AmountType4Choice", "UltmtDbtr? PartyIdentification135"),
        *("CdtrAgt? BranchAndFinancialInstitutionIdentification6", "CdtrAgtAcct? CashAccount38"),
        *("Cdtr? PartyIdentification135", "CdtrAcct? CashAccount38", "UltmtCdtr? PartyIdentification135"),
        *("Purp? Purpose2Choice", "RmtInf? RemittanceInformation16"),
    ),
)


DEFAULT_MESSAGE_NAME = "pain.001.001.09"
KEPT_PAYMENTS = 4_096
KEPT_BYTES = 32 * 1024 * 1024
LARGEST_KEPT_BYTES = 16 * 1024
"""The largest raw payment that is cached. Larger payments are processed each time. The originals take about as much memory again;
`KEPT_BYTES` does not include them."""

_OBJECT_BYTES = 160
"""The memory of an MDS object beside its name and its body."""

_decode_fields = msgspec.json.Decoder(Fields).decode
_read_text = msgspec.json.Decoder(str).decode


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
    is_enriched = enrichment.version is not None
    if not (is_enriched or for_facts):
        made = find_valid_original(data)
        if made is not None:
            return made
    message, payment, transfer = _read(MESSAGE, data), _read(INSTRUCTION, data), _read(TRANSACTION, data)
    if is_enriched:
        payment, transfer = _with_agents(payment, transfer, agents)
    made = _original_of(message, payment, transfer)
    header = _children(message.GrpHdr)
    return replace(
        made,
        customer=find_customer(header.get("InitgPty"), payment.get("DbtrAcct"), enrichment) if is_enriched else None,
        membership=membership_of(header, transfer.get("Amt"), made.group, made.instruction) if for_facts else NO_MEMBERSHIP,
    )


def find_valid_original(data: PaymentData) -> Original | None:
    """Return the original of a payment whose parts are all valid as they are: each is read once and written once, in C.

    None for any other payment. Without lookups and facts this is what is made of it child by child, too.
    """
    bodies = [(each, data.find_mds(each.object_type)) for each in (MESSAGE, INSTRUCTION, TRANSACTION)]
    parts = [each.find_struct(b"{}" if body is None else body) for each, body in bodies]
    if None in parts:
        return None
    made = _original_of(*parts)
    encoded = b"".join((made.initiating_party, made.group, made.instruction, made.transaction, made.reference))
    return made if is_plain(encoded) else None


class _Fields(dict[str, msgspec.Raw]):
    """The valid children of a part, as attributes, too: `UNSET` for one that is missing."""

    def __getattr__(self, name: str) -> Any:
        return self.get(name, UNSET)


def _read(reader: PartReader, data: PaymentData) -> _Fields:
    body = data.find_mds(reader.object_type)
    return _Fields() if body is None else _Fields(reader.read(body))


def _children(part: Any) -> Any:
    """Return a part of a part, in which each child is an attribute."""
    if part is UNSET:
        return _NO_FIELDS
    return _Fields(_decode_fields(part)) if isinstance(part, msgspec.Raw) else part


def _with_agents(payment: _Fields, transfer: _Fields, agents: Agents) -> tuple[_Fields, _Fields]:
    debtors = agents.filled(payment.get("DbtrAgt"), payment.get("DbtrAcct"))
    creditors = agents.filled(transfer.get("CdtrAgt"), transfer.get("CdtrAcct"))
    return (
        payment if debtors is None else _Fields(payment | {"DbtrAgt": debtors}),
        transfer if creditors is None else _Fields(transfer | {"CdtrAgt": creditors}),
    )


def _original_of(message: Any, payment: Any, transfer: Any) -> Original:
    """Make the original of three parts whose children are attributes. Of a field on two levels the transaction's counts."""
    header, ids = _children(message.GrpHdr), _children(transfer.PmtId)
    name = header.MsgNmId if message.MsgNmId is UNSET else message.MsgNmId
    party = _members(_Header(header.InitgPty))
    identification = _members(_Identification(ids.InstrId, ids.EndToEndId, ids.UETR))
    reference = _members(
        _Reference(
            transfer.Amt,
            payment.ReqdExctnDt,
            payment.PmtTpInf if transfer.PmtTpInf is UNSET else transfer.PmtTpInf,
            payment.PmtMtd,
            transfer.RmtInf,
            _party(payment.UltmtDbtr if transfer.UltmtDbtr is UNSET else transfer.UltmtDbtr),
            _party(payment.Dbtr),
            payment.DbtrAcct,
            payment.DbtrAgt,
            payment.DbtrAgtAcct,
            transfer.CdtrAgt,
            transfer.CdtrAgtAcct,
            _party(transfer.Cdtr),
            transfer.CdtrAcct,
            _party(transfer.UltmtCdtr),
            transfer.Purp,
        )
    )
    number = header.NbOfTxs
    return Original(
        initiating_party=b"," + party if party else b"",
        group=_members(
            _Group(
                NOT_PROVIDED if header.MsgId is UNSET else header.MsgId,
                DEFAULT_MESSAGE_NAME if name is UNSET else name,
                header.CreDtTm,
                number,
                header.CtrlSum,
            )
        ),
        is_single=number is not UNSET and int(_read_text(number) if isinstance(number, msgspec.Raw) else number) == 1,
        instruction=_members(
            _Instruction(NOT_PROVIDED if payment.PmtInfId is UNSET else payment.PmtInfId, payment.NbOfTxs, payment.CtrlSum)
        ),
        transaction=identification + b"," if identification else b"",
        reference=b',"OrgnlTxRef":{%b}' % reference if reference else b"",
    )


def _party(value: Any) -> Any:
    return UNSET if value is UNSET else _Party(value)


def _members(fields: Any) -> bytes:
    """Encode the fields that are set as the members of a JSON object, without its braces."""
    return _encode(fields)[1:-1]


def _fields_of(name: str, *fields: str) -> Any:
    return msgspec.defstruct(name, [(each, Any, UNSET) for each in fields], gc=False)


_Header = _fields_of("_Header", "InitgPty")
_Group = _fields_of("_Group", "OrgnlMsgId", "OrgnlMsgNmId", "OrgnlCreDtTm", "OrgnlNbOfTxs", "OrgnlCtrlSum")
_Instruction = _fields_of("_Instruction", "OrgnlPmtInfId", "OrgnlNbOfTxs", "OrgnlCtrlSum")
_Identification = _fields_of("_Identification", "OrgnlInstrId", "OrgnlEndToEndId", "OrgnlUETR")
_Party = _fields_of("_Party", "Pty")
_Reference = _fields_of(
    "_Reference",
    *("Amt", "ReqdExctnDt", "PmtTpInf", "PmtMtd", "RmtInf", "UltmtDbtr", "Dbtr", "DbtrAcct", "DbtrAgt", "DbtrAgtAcct"),
    *("CdtrAgt", "CdtrAgtAcct", "Cdtr", "CdtrAcct", "UltmtCdtr", "Purp"),
)
_NO_FIELDS = _Fields()
