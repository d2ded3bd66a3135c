"""Reports against the XSD and the reference parser: real files, each shipped setting, and any JSON."""

import json
import warnings
from collections.abc import Callable
from typing import Any

import pytest
from harness.examples import examples
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from notification_service.payments.iso20022.pain002_schema import TYPES, render_report_xml
from notification_service.payments.notification_settings import NotificationSetting, NotificationSettings, split_information

FLOW = "PaymentInitiationFlow"
WORST_TEXT = "Größe & <Umfang> ]]> " * 20 + "x" * 300 + " \x00\x0b\ufffe end"


@pytest.fixture(scope="session")
def parse() -> Callable[[dict[str, Any]], Any]:
    """Read our XML with the parser of the reference classes."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Warnings of the reference library's own import do not matter here.
        from pyiso20022.pain.pain_002_001_10 import Document
        from xsdata.formats.dataclass.parsers import XmlParser

    parser = XmlParser()
    return lambda report: parser.from_string(render_report_xml({"CstmrPmtStsRpt": report}), Document).cstmr_pmt_sts_rpt


@pytest.mark.slow
def test_a_report_of_every_sample_with_every_shipped_setting_is_valid(
    sample_payments: dict[str, Any],
    shipped_settings: NotificationSettings,
    handle: Any,
    envelope: Any,
    data_of: Any,
    assert_valid: Any,
) -> None:
    assert len(sample_payments) >= 7
    for payment in (each for payments in sample_payments.values() for each in payments):
        data = data_of(*payment)
        for row in shipped_settings:
            (notification,) = handle(envelope((row.event_name, row.process_flow_name, None)), data).notifications
            assert_valid(json.loads(notification.value)["CstmrPmtStsRpt"])


def test_a_report_of_every_sample_says_what_the_sample_said_to_the_reference_parser(
    sample_payments: dict[str, Any], report_of: Any, data_of: Any, parse: Any
) -> None:
    for payment in (each for payments in sample_payments.values() for each in payments):
        message, instruction, transfer = payment
        parsed = parse(report_of(data_of(*payment), "PaymentRejected"))
        group, (stated,) = parsed.orgnl_grp_inf_and_sts, parsed.orgnl_pmt_inf_and_sts
        (transaction,) = stated.tx_inf_and_sts
        assert group.orgnl_msg_id == message["GrpHdr"]["MsgId"]
        assert group.orgnl_msg_nm_id == message.get("MsgNmId", "pain.001.001.09")
        assert stated.orgnl_pmt_inf_id == instruction["PmtInfId"]
        assert transaction.orgnl_end_to_end_id == transfer["PmtId"]["EndToEndId"]
        assert (transaction.tx_sts, transaction.sts_rsn_inf[0].rsn.cd) == ("RJCT", "MS03")
        amount = transaction.orgnl_tx_ref.amt.instd_amt
        assert str(amount.value) == transfer["Amt"]["InstdAmt"]["value"]
        assert amount.ccy == transfer["Amt"]["InstdAmt"]["Ccy"]
        assert transaction.orgnl_tx_ref.dbtr.pty.nm == instruction["Dbtr"]["Nm"]
        assert transaction.orgnl_tx_ref.cdtr.pty.nm == transfer["Cdtr"]["Nm"]
        execution = instruction["ReqdExctnDt"]
        assert str(transaction.orgnl_tx_ref.reqd_exctn_dt.dt) == (execution["Dt"] if isinstance(execution, dict) else execution)


def test_the_fields_of_every_sample_come_through_unless_the_schema_has_no_place_for_them(
    sample_payments: dict[str, Any], transaction_of: Any, data_of: Any
) -> None:
    for name, payments in sample_payments.items():
        for message, instruction, transfer in payments:
            reference = transaction_of(data_of(message, instruction, transfer))["OrgnlTxRef"]
            expected = {key for part in (instruction, transfer) for key in part} & {each.name for each in elements_of_reference()}
            assert set(reference) == expected, name


def elements_of_reference() -> Any:
    kind: Any = TYPES["OriginalTransactionReference28"]
    return kind.elements


def test_the_example_that_uses_most_of_the_schema_is_valid(
    report_of: Any, data_of: Any, example: Any, assert_valid: Any, parse: Any
) -> None:
    report = report_of(data_of(*example()), "PaymentRejected")
    assert_valid(report)
    (transaction,) = parse(report).orgnl_pmt_inf_and_sts[0].tx_inf_and_sts
    assert transaction.orgnl_tx_ref.cdtr.pty.nm == "N" * 140
    assert transaction.orgnl_tx_ref.dbtr.pty.nm == "Müller & Söhne <GmbH>"
    assert transaction.orgnl_tx_ref.rmt_inf.strd[0].cdtr_ref_inf.ref == "RF18539007547034"


@pytest.mark.parametrize("reason_code", [None, "AC04", "proprietary & <odd>", "x" * 40, "\x00"])
def test_a_report_with_the_worst_additional_information_and_reason_is_valid(
    reason_code: str | None, report_of: Any, data_of: Any, assert_valid: Any
) -> None:
    row = NotificationSetting(FLOW, "E", "RJCT", "MS03", split_information(WORST_TEXT))
    assert_valid(report_of(data_of(), "E", reason_code, settings=NotificationSettings([row])))


def test_a_report_of_nothing_is_valid(report_of: Any, data_of: Any, assert_valid: Any) -> None:
    assert_valid(report_of(data_of()))


# Any JSON as the three bodies.

ODD_TEXTS = st.sampled_from(
    [
        *(
            "",
            " ",
            "\r\n",
            "&<>\"'",
            "]]>",
            "\x00",
            "\ufffe",
            "ü" * 34,
            "ü" * 35,
            "ü" * 36,
            "x" * 140,
            "x" * 141,
            "x" * 2_049,
            "😀" * 70,
        ),
        *(
            "2026-02-29",
            "2024-02-29Z",
            "0000-01-01",
            "9999-12-31+14:00",
            "2026-03-30T24:00:00",
            "2026-03-30T10:00:00.1234567890123Z",
        ),
        *("-0", "+1.", ".5", "0.00001", "0.000001", "1" * 18, "1" * 19, "1" * 13 + "." + "1" * 5, "1e3", "NaN", "INF", "-1", "٣"),
        *("EUR", "eur", "EUR\n", "DE", "true", "1", "DEUTDEFF", "DEUTDEFFX", "DE75512108001245126162", "+49-221", "CINV", "RADM"),
    ]
)
NUMBERS = st.integers(min_value=-(10**25), max_value=10**25) | st.floats(allow_nan=False, allow_infinity=False)
SCALARS = st.none() | st.booleans() | NUMBERS | ODD_TEXTS | st.text(st.characters(exclude_categories=["Cs"]), max_size=150)
NAMES = st.sampled_from(
    sorted(
        {e.name for kind in TYPES.values() for e in getattr(kind, "elements", ())}
        | {"BIC", "BICOrBEI", "Ccy", "value", "Unknown"}
    )
)
ANY_JSON = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=9) | st.dictionaries(NAMES, inner, max_size=6), max_leaves=25
)


def places_in(value: Any) -> list[tuple[Any, Any]]:
    """Yield each (container, key) below the value."""
    found: list[tuple[Any, Any]] = []
    waiting = [value]
    while waiting:
        container = waiting.pop()
        keys = list(container) if isinstance(container, dict) else range(len(container))
        found += [(container, key) for key in keys]
        waiting += [container[key] for key in keys if isinstance(container[key], dict | list)]
    return found


def mutate(payment: list[Any], draw: Any) -> None:
    """Make one change at a random place: another value, removed, repeated, wrapped in an array, moved, or renamed."""
    places = places_in(payment)
    container, key = places[draw(st.integers(0, len(places) - 1))]
    value = container[key]
    match draw(st.sampled_from(["scalar", "scalar", "json", "remove", "list", "repeat", "move", "rename", "number"])):
        case "scalar":
            container[key] = draw(SCALARS)
        case "json":
            container[key] = draw(ANY_JSON)
        case "remove" if isinstance(container, dict):
            del container[key]
        case "list":
            container[key] = [value]
        case "repeat":
            container[key] = [value] * draw(st.integers(2, 9))
        case "move":
            other, place = places[draw(st.integers(0, len(places) - 1))]
            other[place] = json.loads(json.dumps(value))
        case "rename" if isinstance(container, dict):
            container[draw(NAMES)] = container.pop(key)
        case "number" if isinstance(value, str) and value.replace(".", "").isdigit():
            container[key] = float(value)


@pytest.fixture(scope="session")
def seeds(sample_payments: dict[str, Any], example: Any) -> list[str]:
    """Yield real payments as JSON, and the example, which uses parts of the schema that no real one uses."""
    real = [json.dumps(payments[0]) for payments in sample_payments.values()]
    return [*real, *[json.dumps(example())] * len(real)]


ENOUGH = settings(max_examples=examples(150), suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
PLENTY = settings(ENOUGH, max_examples=examples(1_500))


@pytest.mark.slow
@ENOUGH
@given(drawn=st.data())
def test_any_change_to_real_payment_data_still_makes_a_valid_report(
    drawn: st.DataObject, seeds: list[str], report_of: Any, data_of: Any, assert_valid: Any
) -> None:
    assert_changed_data_makes_a_valid_report(drawn, seeds, report_of, data_of, assert_valid)


@pytest.mark.slow
@PLENTY
@given(drawn=st.data())
def test_thousands_of_changes_to_real_payment_data_still_make_valid_reports(
    drawn: st.DataObject, seeds: list[str], report_of: Any, data_of: Any, assert_valid: Any
) -> None:
    assert_changed_data_makes_a_valid_report(drawn, seeds, report_of, data_of, assert_valid)


def assert_changed_data_makes_a_valid_report(
    drawn: st.DataObject, seeds: list[str], report_of: Any, data_of: Any, assert_valid: Any
) -> None:
    payment: list[Any] = json.loads(drawn.draw(st.sampled_from(seeds)))
    for _ in range(drawn.draw(st.integers(1, 12))):
        mutate(payment, drawn.draw)
    event = drawn.draw(st.sampled_from(["PaymentRejected", "PaymentAccepted", "PaymentCancelled"]))
    reason = drawn.draw(st.none() | ODD_TEXTS)
    assert_valid(report_of(data_of(*(json.dumps(part).encode() for part in payment)), event, reason))


@settings(ENOUGH, max_examples=examples(80))
@given(header=ANY_JSON, instruction=ANY_JSON, transfer=ANY_JSON)
def test_any_json_as_the_three_bodies_makes_a_valid_report(
    header: Any, instruction: Any, transfer: Any, report_of: Any, data_of: Any, assert_valid: Any
) -> None:
    assert_valid(report_of(data_of(*(json.dumps(part).encode() for part in ({"GrpHdr": header}, instruction, transfer)))))


@pytest.mark.parametrize("name", sorted(each.name for each in elements_of_reference()))
def test_any_json_as_one_field_of_the_reference_makes_a_valid_report(
    name: str, report_of: Any, data_of: Any, assert_valid: Any
) -> None:
    @settings(ENOUGH, max_examples=examples(10))
    @given(value=ANY_JSON)
    def check(value: Any) -> None:
        body = json.dumps({name: value}).encode()
        assert_valid(report_of(data_of(None, body, body)))

    check()
