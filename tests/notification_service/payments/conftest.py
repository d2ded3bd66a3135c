"""Real pain.001 files as the three raw bodies of a payment, and checks of status reports."""

import copy
import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from defusedxml import ElementTree

from notification_service.payments.envelope import PAIN_001_PARTS, DataEnvelope, ProcessObject
from notification_service.payments.iso20022.pain002_schema import render_report_xml
from notification_service.payments.notification_settings import NotificationSettings, parse_notification_settings
from notification_service.payments.payment_data import PaymentData
from notification_service.payments.settings import HandlerSettings, make_handler
from resequencer.handler import Handled, Marks
from resequencer.record import Origin, Partition, Record

ROOT = Path(__file__).parents[3]
SAMPLES = ROOT.parent / "shared" / "samples"
"""Files of other projects, beside the repository and no part of it; tests that read them are skipped where they are not.

`pain.001/*.xml` are examples (sebastienrousseau/pain001, svapnil/iso20022.js, moov-io/iso20022), `xsd/` has the schemas
pain.001.001.09 and pain.002.001.10 of ISO 20022, `code-sets/` its external code sets (iso20022.org) as JSON.
"""
SETTINGS_FILE = ROOT / "conf" / "notification-settings.csv"
NOW = 1_774_740_835_941
UNMARKED = Marks()
AS_REPORT = HandlerSettings()

Payment = tuple[dict[str, Any], dict[str, Any], dict[str, Any]]

# Elements that may repeat in the parts of a pain.001 that the files use; all others are single values.
REPEATING = {"Ustrd", "Strd", "AdrLine", "RfrdDocInf", "AddtlRmtInf", "RgltryRptg", "InstrForCdtrAgt", "SplmtryData"}


def element_to_json(element: Any) -> Any:
    """Return the element as JSON by ISO tags (docs/contract.md, section 4): attributes beside `value`, arrays for
    repeatable elements.
    """
    children = list(element)
    if not children:
        text = (element.text or "").strip()
        return {**element.attrib, "value": text} if element.attrib else text
    found: dict[str, Any] = {}
    for child in children:
        name = child.tag.partition("}")[2]
        value = element_to_json(child)
        if name in found:
            found[name] = [*(found[name] if isinstance(found[name], list) else [found[name]]), value]
        else:
            found[name] = [value] if name in REPEATING else value
    return found


def single_payments(xml: bytes) -> list[Payment]:
    """Return each transaction of the file as a payment of its own, with its group header and its instruction."""
    initiation = next(iter(ElementTree.fromstring(xml)))
    namespace = initiation.tag.partition("}")[0] + "}"
    payments: list[Payment] = []
    for instruction in initiation.findall(f"{namespace}PmtInf"):
        transfers = instruction.findall(f"{namespace}CdtTrfTxInf")
        for transfer in transfers:
            instruction.remove(transfer)
        message = {"GrpHdr": element_to_json(initiation.find(f"{namespace}GrpHdr"))}
        if namespace.endswith(".03}"):
            message["MsgNmId"] = "pain.001.001.03"
        payments.extend((message, element_to_json(instruction), element_to_json(each)) for each in transfers)
    return payments


def payment_data(message: Any = None, instruction: Any = None, transfer: Any = None, **others: Any) -> PaymentData:
    """Make payment data of the parts that are not None. Parts are encoded as JSON; bytes are used as they are."""
    parts = zip(PAIN_001_PARTS, (message, instruction, transfer), strict=True)
    encoded = [(name, part if isinstance(part, bytes) else json.dumps(part).encode()) for name, part in parts if part is not None]
    return PaymentData(mds=tuple(encoded), **others)


def envelope_of(*events: tuple[str | None, str | None, str | None]) -> DataEnvelope:
    """Make an envelope with a process object for each (event, flow, reason code)."""
    record = Record(Origin(Partition("IPF_PROCESSING_DATA", 3), 42), b"{}")
    objects = tuple(ProcessObject(f"PaymentFlow|e{n}", "PROCESS_FLOW_EVENT", *event, b"{}") for n, event in enumerate(events))
    return DataEnvelope(
        "uow-1", "PaymentInitiationFlow", 1, "PaymentFlow|e0", b"h" * 8, b"d" * 8, record, process_objects=objects
    )


EXAMPLE: Payment = (
    {
        "GrpHdr": {
            "MsgId": "MSG-1",
            "CreDtTm": "2026-03-28T10:00:00Z",
            "NbOfTxs": "1",
            "CtrlSum": "12.50",
            "InitgPty": {"Nm": "Müller & Söhne <GmbH>"},
        }
    },
    {
        "PmtInfId": "PMT-1",
        "PmtMtd": "TRF",
        "NbOfTxs": "1",
        "CtrlSum": "12.50",
        "PmtTpInf": {"SvcLvl": [{"Cd": "SEPA"}], "CtgyPurp": {"Cd": "SUPP"}},
        "ReqdExctnDt": {"Dt": "2026-03-30"},
        "Dbtr": {"Nm": "Müller & Söhne <GmbH>", "PstlAdr": {"TwnNm": "Köln", "Ctry": "DE", "AdrLine": ["Weg 1", "50667 Köln"]}},
        "DbtrAcct": {"Id": {"IBAN": "DE75512108001245126162"}, "Ccy": "EUR"},
        "DbtrAgt": {"FinInstnId": {"BICFI": "DEUTDEFFXXX"}},
        "UltmtDbtr": {"Nm": "The one behind", "Id": {"OrgId": {"AnyBIC": "DEUTDEFF", "Othr": [{"Id": "4711"}]}}},
    },
    {
        "PmtId": {"InstrId": "INSTR-1", "EndToEndId": "E2E-1", "UETR": "eb6305c9-1f7f-49de-aed0-16487c27b42d"},
        "Amt": {"InstdAmt": {"Ccy": "EUR", "value": "12.50"}},
        "CdtrAgt": {"FinInstnId": {"BICFI": "COBADEFF", "ClrSysMmbId": {"MmbId": "37040044"}}, "BrnchId": {"Id": "B1"}},
        "Cdtr": {"Nm": "N" * 140, "CtctDtls": {"PhneNb": "+49-221123456", "Othr": [{"ChanlTp": "FAX", "Id": "1"}]}},
        "CdtrAcct": {
            "Id": {"Othr": {"Id": "1234", "SchmeNm": {"Cd": "BBAN"}}},
            "Prxy": {"Tp": {"Cd": "EMAL"}, "Id": "a@b.example"},
        },
        "UltmtCdtr": {
            "Id": {"PrvtId": {"DtAndPlcOfBirth": {"BirthDt": "1980-02-29", "CityOfBirth": "Ulm", "CtryOfBirth": "DE"}}}
        },
        "Purp": {"Cd": "GDDS"},
        "RmtInf": {
            "Ustrd": ["Invoice 1 & 2"],
            "Strd": [
                {
                    "RfrdDocInf": [
                        {
                            "Tp": {"CdOrPrtry": {"Cd": "CINV"}, "Issr": "me"},
                            "Nb": "RE-1",
                            "RltdDt": "2026-03-01",
                            "LineDtls": [
                                {
                                    "Id": [{"Tp": {"CdOrPrtry": {"Cd": "LINE"}}, "Nb": "1"}],
                                    "Desc": "pens",
                                    "Amt": {"DuePyblAmt": {"Ccy": "EUR", "value": "1"}},
                                }
                            ],
                        }
                    ],
                    "RfrdDocAmt": {
                        "DuePyblAmt": {"Ccy": "EUR", "value": "12.50"},
                        "DscntApldAmt": [{"Tp": {"Cd": "APDS"}, "Amt": {"Ccy": "EUR", "value": "0.50"}}],
                        "TaxAmt": [{"Amt": {"Ccy": "EUR", "value": "2"}}],
                        "AdjstmntAmtAndRsn": [{"Amt": {"Ccy": "EUR", "value": "1"}, "CdtDbtInd": "CRDT", "Rsn": "R1"}],
                        "RmtdAmt": {"Ccy": "EUR", "value": "12.00"},
                    },
                    "CdtrRefInf": {"Tp": {"CdOrPrtry": {"Cd": "SCOR"}, "Issr": "ISO"}, "Ref": "RF18539007547034"},
                    "Invcr": {"Nm": "Invoicer"},
                    "TaxRmt": {
                        "Cdtr": {"TaxId": "T1"},
                        "Dbtr": {"TaxId": "T2", "Authstn": {"Titl": "Dr", "Nm": "Who"}},
                        "TtlTaxAmt": {"Ccy": "EUR", "value": "2"},
                        "Dt": "2026-03-01",
                        "SeqNb": 7,
                        "Rcrd": [
                            {
                                "Tp": "VAT",
                                "Prd": {"Yr": "2026-01-01", "Tp": "QTR1", "FrToDt": {"FrDt": "2026-01-01", "ToDt": "2026-03-31"}},
                                "TaxAmt": {
                                    "Rate": 19.5,
                                    "TtlAmt": {"Ccy": "EUR", "value": "2"},
                                    "Dtls": [{"Amt": {"Ccy": "EUR", "value": "2"}}],
                                },
                            }
                        ],
                    },
                    "GrnshmtRmt": {"Tp": {"CdOrPrtry": {"Cd": "GNCS"}}, "Grnshee": {"Nm": "G"}, "FmlyMdclInsrncInd": True},
                    "AddtlRmtInf": ["more", "and more"],
                }
            ],
        },
    },
)
"""A payment that uses most of what a pain.001.001.09 allows."""


@pytest.fixture(scope="session")
def example() -> Callable[[], Payment]:
    """Return a fresh copy of the payment that uses most of the schema: group part, instruction, transaction."""
    return lambda: copy.deepcopy(EXAMPLE)


@pytest.fixture(scope="session")
def data_of() -> Callable[..., PaymentData]:
    return payment_data


@pytest.fixture(scope="session")
def envelope() -> Callable[..., DataEnvelope]:
    return envelope_of


@pytest.fixture(scope="session")
def samples() -> Path:
    if not SAMPLES.is_dir():
        pytest.skip(f"the shared samples are not at {SAMPLES}")
    return SAMPLES


@pytest.fixture(scope="session")
def shipped_settings() -> NotificationSettings:
    with SETTINGS_FILE.open(encoding="utf-8") as lines:
        return parse_notification_settings(lines, SETTINGS_FILE.name)


@pytest.fixture(scope="session")
def sample_payments(samples: Path) -> dict[str, list[Payment]]:
    """Return the single payments of each valid file."""
    files = [each for each in sorted((samples / "pain.001").glob("*.xml")) if "invalid" not in each.name]
    return {each.name: single_payments(each.read_bytes()) for each in files}


@pytest.fixture(scope="session")
def handle(shipped_settings: NotificationSettings) -> Callable[..., Handled]:
    """Handle an envelope as configured; by default with the shipped settings and the target type `report`."""

    def handle(
        envelope: DataEnvelope,
        data: PaymentData,
        *,
        marks: Marks = UNMARKED,
        now: int = NOW,
        settings: NotificationSettings = shipped_settings,
        configured: HandlerSettings = AS_REPORT,
    ) -> Handled:
        return make_handler(configured, settings).handle(envelope, data, marks, now)

    return handle


@pytest.fixture(scope="session")
def report_of(handle: Callable[..., Handled]) -> Callable[..., dict[str, Any]]:
    """Return the decoded report of one event on payment data: the content of CstmrPmtStsRpt."""

    def report_of(data: PaymentData, event: str = "PaymentAccepted", reason: str | None = None, **options: Any) -> dict[str, Any]:
        handled = handle(envelope_of((event, "PaymentInitiationFlow", reason)), data, **options)
        (notification,) = handled.notifications
        report: dict[str, Any] = json.loads(notification.value)
        assert list(report) == ["CstmrPmtStsRpt"]
        return report["CstmrPmtStsRpt"]  # type: ignore[no-any-return]

    return report_of


@pytest.fixture(scope="session")
def transaction_of(report_of: Callable[..., dict[str, Any]]) -> Callable[..., dict[str, Any]]:
    """Return only TxInfAndSts of that report."""

    def transaction_of(*arguments: Any, **options: Any) -> dict[str, Any]:
        (instruction,) = report_of(*arguments, **options)["OrgnlPmtInfAndSts"]
        (transaction,) = instruction["TxInfAndSts"]
        return transaction  # type: ignore[no-any-return]

    return transaction_of


@pytest.fixture(scope="session")
def schema(samples: Path) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Warnings of xmlschema's own import do not matter here.
        import xmlschema

    return xmlschema.XMLSchema10(samples / "xsd" / "pain.002.001.10.xsd")


@pytest.fixture(scope="session")
def assert_valid(schema: Any) -> Callable[[dict[str, Any]], None]:
    """Fail unless the report, rendered as XML, is valid against the XSD."""

    def assert_valid(report: dict[str, Any]) -> None:
        document = ElementTree.fromstring(render_report_xml({"CstmrPmtStsRpt": report}).encode())
        errors = [f"{error.path}: {error.reason}" for error in schema.iter_errors(document)]
        assert not errors, errors

    return assert_valid
