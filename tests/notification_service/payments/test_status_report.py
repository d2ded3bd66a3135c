import json
from collections.abc import Callable
from typing import Any

import pytest
from msgspec import structs

from notification_service.payments.enrichment import SettingsAlone
from notification_service.payments.iso20022.pain002_schema import REPORT
from notification_service.payments.notification_settings import NotificationSetting, NotificationSettings
from notification_service.payments.original import KEPT_PAYMENTS, Originals
from resequencer.errors import PermanentError


def test_a_report_of_every_shipped_setting_has_its_status_and_the_form_of_the_schema(
    report_of: Callable[..., Any],
    data_of: Callable[..., Any],
    example: Callable[..., Any],
    shipped_settings: NotificationSettings,
) -> None:
    for row in shipped_settings:
        settings = NotificationSettings([structs.replace(row, process_flow_name="PaymentInitiationFlow")])
        report = report_of(data_of(*example()), row.event_name, settings=settings)
        (transaction,) = report["OrgnlPmtInfAndSts"][0]["TxInfAndSts"]
        assert transaction["TxSts"] == row.transaction_status
        assert transaction.get("StsRsnInf") == ([{"Rsn": {"Cd": row.reason_code}}] if row.reason_code else None)
        assert list(conformed_items(report)) == list(report.items())


def test_a_report_says_all_that_is_known_of_a_single_payment_in_the_order_of_the_schema(
    report_of: Callable[..., Any], data_of: Callable[..., Any], example: Callable[..., Any]
) -> None:
    report = report_of(data_of(*example()), "PaymentRejected")
    assert list(report) == ["GrpHdr", "OrgnlGrpInfAndSts", "OrgnlPmtInfAndSts"]
    assert list(report["GrpHdr"]) == ["MsgId", "CreDtTm", "InitgPty"]
    assert report["OrgnlGrpInfAndSts"] == {
        "OrgnlMsgId": "MSG-1",
        "OrgnlMsgNmId": "pain.001.001.09",
        "OrgnlCreDtTm": "2026-03-28T10:00:00Z",
        "OrgnlNbOfTxs": "1",
        "OrgnlCtrlSum": "12.50",
        "GrpSts": "RJCT",
    }
    (instruction,) = report["OrgnlPmtInfAndSts"]
    assert list(instruction) == ["OrgnlPmtInfId", "OrgnlNbOfTxs", "OrgnlCtrlSum", "TxInfAndSts"]
    (transaction,) = instruction["TxInfAndSts"]
    assert list(transaction) == ["OrgnlInstrId", "OrgnlEndToEndId", "OrgnlUETR", "TxSts", "StsRsnInf", "OrgnlTxRef"]
    assert list(transaction["OrgnlTxRef"]) == [
        *("Amt", "ReqdExctnDt", "PmtTpInf", "PmtMtd", "RmtInf", "UltmtDbtr", "Dbtr", "DbtrAcct", "DbtrAgt"),
        *("CdtrAgt", "Cdtr", "CdtrAcct", "UltmtCdtr", "Purp"),
    ]


def test_every_valid_part_of_the_original_is_repeated_as_it_came(
    transaction_of: Callable[..., Any], data_of: Callable[..., Any], example: Callable[..., Any]
) -> None:
    message, instruction, transfer = example()
    reference = transaction_of(data_of(message, instruction, transfer))["OrgnlTxRef"]
    for name in ("ReqdExctnDt", "PmtTpInf", "PmtMtd", "DbtrAcct", "DbtrAgt"):
        assert reference[name] == instruction[name]
    for name in ("Amt", "CdtrAgt", "CdtrAcct", "Purp"):
        assert reference[name] == transfer[name]
    for name, where in (("UltmtDbtr", instruction), ("Dbtr", instruction), ("Cdtr", transfer), ("UltmtCdtr", transfer)):
        assert reference[name] == {"Pty": where[name]}
    strd = transfer["RmtInf"]["Strd"][0]
    strd["TaxRmt"]["SeqNb"] = "7"
    strd["TaxRmt"]["Rcrd"][0]["TaxAmt"]["Rate"] = "19.5"
    strd["GrnshmtRmt"]["FmlyMdclInsrncInd"] = "true"
    assert reference["RmtInf"] == transfer["RmtInf"]


def test_a_report_of_nothing_says_only_what_the_schema_demands(
    report_of: Callable[..., Any], data_of: Callable[..., Any]
) -> None:
    report = report_of(data_of())
    assert list(report["GrpHdr"]) == ["MsgId", "CreDtTm"]
    assert report["OrgnlGrpInfAndSts"] == {"OrgnlMsgId": "NOTPROVIDED", "OrgnlMsgNmId": "pain.001.001.09"}
    assert report["OrgnlPmtInfAndSts"] == [{"OrgnlPmtInfId": "NOTPROVIDED", "TxInfAndSts": [{"TxSts": "ACCP"}]}]


@pytest.mark.parametrize("missing", [0, 1, 2])
def test_a_part_that_never_came_leaves_only_its_own_fields_out(
    missing: int, report_of: Callable[..., Any], data_of: Callable[..., Any], example: Callable[..., Any]
) -> None:
    parts = [None if index == missing else part for index, part in enumerate(example())]
    report = report_of(data_of(*parts))
    (instruction,) = report["OrgnlPmtInfAndSts"]
    (transaction,) = instruction["TxInfAndSts"]
    assert (report["OrgnlGrpInfAndSts"]["OrgnlMsgId"] == "NOTPROVIDED") == (missing == 0)
    assert (instruction["OrgnlPmtInfId"] == "NOTPROVIDED") == (missing == 1)
    assert ("OrgnlEndToEndId" in transaction) == (missing != 2)
    assert ("Dbtr" in transaction["OrgnlTxRef"], "Cdtr" in transaction["OrgnlTxRef"]) == (missing != 1, missing != 2)


def test_what_the_schema_refuses_is_left_out_and_the_rest_stays(
    report_of: Callable[..., Any], data_of: Callable[..., Any], example: Callable[..., Any]
) -> None:
    message, instruction, transfer = example()
    message["GrpHdr"]["MsgId"] = "x" * 36
    message["GrpHdr"]["CreDtTm"] = "yesterday"
    instruction["DbtrAcct"]["Id"]["IBAN"] = "no iban"
    instruction["ReqdExctnDt"] = {"Dt": "2026-02-30"}
    transfer["Cdtr"] = {"Nm": "x" * 141, "PstlAdr": {"Ctry": "Germany", "TwnNm": "Ulm"}}
    transfer["PmtId"]["UETR"] = "x"
    report = report_of(data_of(message, instruction, transfer))
    group = report["OrgnlGrpInfAndSts"]
    assert group["OrgnlMsgId"] == "NOTPROVIDED"
    assert "OrgnlCreDtTm" not in group
    (transaction,) = report["OrgnlPmtInfAndSts"][0]["TxInfAndSts"]
    assert "OrgnlUETR" not in transaction
    assert "DbtrAcct" not in transaction["OrgnlTxRef"]
    assert "ReqdExctnDt" not in transaction["OrgnlTxRef"]
    assert transaction["OrgnlTxRef"]["Cdtr"] == {"Pty": {"PstlAdr": {"TwnNm": "Ulm"}}}


def test_the_shapes_of_version_03_are_accepted(
    report_of: Callable[..., Any], data_of: Callable[..., Any], example: Callable[..., Any]
) -> None:
    message, instruction, transfer = example()
    newer = report_of(data_of(message, instruction, transfer))
    message["MsgNmId"] = "pain.001.001.03"
    instruction["ReqdExctnDt"] = "2026-03-30"
    instruction["PmtTpInf"]["SvcLvl"] = {"Cd": "SEPA"}
    for agent in (instruction["DbtrAgt"], transfer["CdtrAgt"]):
        agent["FinInstnId"]["BIC"] = agent["FinInstnId"].pop("BICFI")
    organisation = instruction["UltmtDbtr"]["Id"]["OrgId"]
    organisation["BICOrBEI"] = organisation.pop("AnyBIC")
    older = report_of(data_of(message, instruction, transfer))
    assert older["OrgnlGrpInfAndSts"].pop("OrgnlMsgNmId") == "pain.001.001.03"
    assert newer["OrgnlGrpInfAndSts"].pop("OrgnlMsgNmId") == "pain.001.001.09"
    assert older == newer


def test_what_both_levels_may_say_is_taken_from_the_transaction(
    transaction_of: Callable[..., Any], data_of: Callable[..., Any], example: Callable[..., Any]
) -> None:
    message, instruction, transfer = example()
    transfer["PmtTpInf"] = {"InstrPrty": "HIGH"}
    transfer["UltmtDbtr"] = {"Nm": "Another"}
    reference = transaction_of(data_of(message, instruction, transfer))["OrgnlTxRef"]
    assert reference["PmtTpInf"] == {"InstrPrty": "HIGH"}
    assert reference["UltmtDbtr"] == {"Pty": {"Nm": "Another"}}


def test_numbers_keep_their_digits(report_of: Callable[..., Any], data_of: Callable[..., Any]) -> None:
    body = b'{"GrpHdr": {"MsgId": "M", "NbOfTxs": 1, "CtrlSum": 123456789012345.670}}'
    transfer = b'{"Amt": {"InstdAmt": {"Ccy": "EUR", "value": 0.10}}}'
    report = report_of(data_of(body, None, transfer))
    assert report["OrgnlGrpInfAndSts"]["OrgnlCtrlSum"] == "123456789012345.670"
    (transaction,) = report["OrgnlPmtInfAndSts"][0]["TxInfAndSts"]
    assert transaction["OrgnlTxRef"]["Amt"]["InstdAmt"]["value"] == "0.10"


@pytest.mark.parametrize(
    ("number", "event", "expected"),
    [
        ("1", "PaymentAccepted", "ACCP"),
        ("0001", "PaymentAccepted", "ACCP"),
        ("2", "PaymentAccepted", None),
        (None, "PaymentAccepted", None),
        ("one", "PaymentAccepted", None),
        ("1", "PaymentCancelled", None),
    ],
)
def test_the_group_has_a_status_only_where_it_had_one_transaction_and_knows_the_code(
    number: str | None, event: str, expected: str | None, report_of: Callable[..., Any], data_of: Callable[..., Any]
) -> None:
    report = report_of(data_of({"GrpHdr": {"NbOfTxs": number}}), event)
    assert report["OrgnlGrpInfAndSts"].get("GrpSts") == expected


@pytest.mark.parametrize(
    ("event", "reason_code", "expected"),
    [
        ("PaymentRejected", None, {"Cd": "MS03"}),
        ("PaymentRejected", "AC04", {"Cd": "AC04"}),
        ("PaymentRejected", "Ä&<our own>", {"Prtry": "Ä&<our own>"}),
        ("PaymentRejected", "x" * 35, {"Prtry": "x" * 35}),
        ("PaymentRejected", "x" * 36, {"Cd": "MS03"}),
        ("PaymentRejected", "a\x00b", {"Prtry": "a\ufffdb"}),
        ("PaymentRejected", "ac04", {"Prtry": "ac04"}),
        ("PaymentRejected", "", {"Cd": "MS03"}),
        ("PaymentAccepted", "AC04", None),
        ("PaymentAccepted", None, None),
    ],
)
def test_the_reason_is_the_settings_unless_the_event_says_another(
    event: str, reason_code: str | None, expected: Any, transaction_of: Callable[..., Any], data_of: Callable[..., Any]
) -> None:
    transaction = transaction_of(data_of(), event, reason_code)
    assert transaction.get("StsRsnInf") == (None if expected is None else [{"Rsn": expected}])


def test_a_rejection_without_a_reason_in_the_settings_takes_the_events(
    transaction_of: Callable[..., Any], data_of: Callable[..., Any]
) -> None:
    settings = NotificationSettings([NotificationSetting("PaymentInitiationFlow", "E", "RJCT")])
    assert transaction_of(data_of(), "E", "AC04", settings=settings)["StsRsnInf"] == [{"Rsn": {"Cd": "AC04"}}]
    assert "StsRsnInf" not in transaction_of(data_of(), "E", None, settings=settings)


def test_additional_information_follows_the_reason(transaction_of: Callable[..., Any], data_of: Callable[..., Any]) -> None:
    row = NotificationSetting("PaymentInitiationFlow", "E", "ACCP", None, ("one", "two"))
    assert transaction_of(data_of(), "E", settings=NotificationSettings([row]))["StsRsnInf"] == [{"AddtlInf": ["one", "two"]}]
    row = NotificationSetting("PaymentInitiationFlow", "E", "RJCT", "MS03", ("one",))
    (information,) = transaction_of(data_of(), "E", settings=NotificationSettings([row]))["StsRsnInf"]
    assert list(information.items()) == [("Rsn", {"Cd": "MS03"}), ("AddtlInf", ["one"])]


@pytest.mark.parametrize(("reason", "own"), [("MS03", ()), ("MS03", ("one",)), (None, ()), ("NARR", ("one",)), ("NARR", ())])
def test_a_narrative_reason_is_followed_by_a_narrative(
    reason: str | None, own: tuple[str, ...], transaction_of: Callable[..., Any], data_of: Callable[..., Any]
) -> None:
    """ISO's StatusReasonRule. Without a narrative in the settings, the report has NOTPROVIDED."""
    settings = NotificationSettings([NotificationSetting("PaymentInitiationFlow", "E", "RJCT", reason, own)])
    for reason_code in ("NARR", None):
        (information,) = transaction_of(data_of(), "E", reason_code, settings=settings).get("StsRsnInf", [{}])
        if information.get("Rsn") == {"Cd": "NARR"}:
            assert information["AddtlInf"] == list(own or ("NOTPROVIDED",))
        else:
            assert "NOTPROVIDED" not in information.get("AddtlInf", ())


@pytest.mark.parametrize(
    "wrong", [None, True, 1, 1.5, "text", [], [{}], {}, {"GrpHdr": None}, {"GrpHdr": []}, {"PmtId": 1, "Amt": []}]
)
def test_bodies_of_the_wrong_type_are_as_good_as_none(
    wrong: Any, report_of: Callable[..., Any], data_of: Callable[..., Any]
) -> None:
    body = json.dumps(wrong).encode()
    assert report_of(data_of(body, body, body)) == report_of(data_of())


@pytest.mark.parametrize("wrong", [None, True, 1, 1.5, "", [], {}, [[[]]], {"value": {"value": 1}}, "x" * 3_000, "\x00", 10**30])
def test_a_value_of_the_wrong_type_anywhere_never_raises(
    wrong: Any, report_of: Callable[..., Any], data_of: Callable[..., Any], example: Callable[..., Any]
) -> None:
    for part in range(3):
        for path in paths_of(example()[part]):
            parts = example()
            put(parts[part], path, wrong)
            report = report_of(data_of(*parts))
            assert list(conformed_items(report)) == list(report.items())


def paths_of(value: Any, so_far: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path for key, child in children for path in [(*so_far, key), *paths_of(child, (*so_far, key))]]


def put(value: Any, path: tuple[Any, ...], new: Any) -> None:
    for key in path[:-1]:
        value = value[key]
    value[path[-1]] = new


def conformed_items(report: Any) -> Any:
    """Check without the XSD: the project's own table finds nothing to correct in the report."""
    conformed = REPORT.conform(report)
    assert isinstance(conformed, dict)
    return conformed.items()


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b'{"a": "\xff"}',
        b"nonsense",
        b'{"a": "\\ud800"}',
        b"[" * 100_000,
        b"[" * 5_000 + b"]" * 5_000,
        b"NaN",
        b"9" * 5_000,
    ],
)
def test_a_body_that_cannot_be_read_is_a_permanent_error_that_names_it(
    body: bytes, report_of: Callable[..., Any], data_of: Callable[..., Any]
) -> None:
    with pytest.raises(PermanentError, match="the body of PAIN_001_PAYMENT_TRANSACTION cannot be read"):
        report_of(data_of(None, None, body))


def test_numbers_beyond_the_schema_are_left_out(report_of: Callable[..., Any], data_of: Callable[..., Any]) -> None:
    body = b'{"GrpHdr": {"CtrlSum": 9999999999999999999, "NbOfTxs": 1e15, "MsgId": 7}}'
    assert report_of(data_of(body)) == report_of(data_of())


def test_a_body_nested_400_deep_costs_only_itself(
    report_of: Callable[..., Any], data_of: Callable[..., Any], example: Callable[..., Any]
) -> None:
    message, instruction, transfer = example()
    clean = report_of(data_of(message, instruction, transfer))
    deep: Any = "x"
    for _ in range(400):
        deep = [{"Strd": deep}]
    transfer["Unknown"] = deep
    assert report_of(data_of(message, instruction, transfer)) == clean


def test_a_payment_too_large_to_be_kept_is_reported_all_the_same(
    report_of: Callable[..., Any], data_of: Callable[..., Any], example: Callable[..., Any]
) -> None:
    message, instruction, transfer = example()
    clean = report_of(data_of(message, instruction, transfer))
    originals = Originals(SettingsAlone(NotificationSettings([])))
    transfer["Unknown"] = "x" * 100_000
    data = data_of(message, instruction, transfer)
    assert report_of(data) == clean
    originals.get(data)
    assert len(originals) == 0


def test_of_more_payments_than_are_kept_the_earliest_is_forgotten(data_of: Callable[..., Any]) -> None:
    originals = Originals(SettingsAlone(NotificationSettings([])))
    for number in range(KEPT_PAYMENTS + 2):
        originals.get(data_of({"GrpHdr": {"MsgId": f"M-{number}"}}))
    assert len(originals) == KEPT_PAYMENTS
