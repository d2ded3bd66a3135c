"""A part of a pain.001 is read at once or child by child, and both give the same result."""

import copy
import json
from collections.abc import Callable
from typing import Any

import pytest
from harness.examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from notification_service.payments.iso20022.pain002_schema import TYPES
from notification_service.payments.iso20022.part_reader import PartReader
from notification_service.payments.iso20022.schema_notation import Schema
from notification_service.payments.original import INSTRUCTION, MESSAGE, TRANSACTION
from tests.notification_service.payments.conftest import EXAMPLE, Payment

READERS = (MESSAGE, INSTRUCTION, TRANSACTION)


def assert_same(reader: PartReader, body: bytes) -> None:
    valid = reader.find_valid(body)
    assert valid is None or valid == reader.conformed(body)


def test_a_payment_that_the_schema_accepts_is_read_at_once(sample_payments: dict[str, list[Payment]]) -> None:
    """Otherwise no payment would be read the fast way."""
    current = [each for payments in sample_payments.values() for each in payments if "MsgNmId" not in each[0]]
    parts = [
        (reader, json.dumps(part, ensure_ascii=False).encode())
        for each in current
        for reader, part in zip(READERS, each, strict=True)
    ]
    at_once = [reader.find_valid(body) is not None for reader, body in parts]
    assert sum(at_once) > 0.9 * len(parts)


def test_of_real_payments_both_ways_say_the_same(sample_payments: dict[str, list[Payment]]) -> None:
    for payment in (each for payments in sample_payments.values() for each in payments):
        for reader, part in zip(READERS, payment, strict=True):
            assert_same(reader, json.dumps(part).encode())
            assert_same(reader, json.dumps(part, ensure_ascii=False).encode())


WRONG = [
    *(
        None,
        True,
        1,
        1.50,
        "",
        " ",
        " x",
        "x ",
        "\t",
        "a\x00b",
        "a\x7fb",
        "ä\u00a0",
        "x" * 141,
        "12.50",
        "-1",
        "+1",
        "1.",
        "00012.500000",
    ),
    *("2026-02-29", "2028-02-29", "2026-04-31", "0000-01-01", "2026-01-01Z", "2026-01-01T10:00:00+02:00", "2026-01-01T24:00:00"),
    *(
        [],
        [None],
        ["x", "y"],
        [{}],
        {},
        {"value": "x"},
        {"Cd": "SEPA", "Prtry": "x"},
        {"Nm": "{}"},
        {"Ccy": "EUR", "value": "1"},
        {"Dt": "2026-03-30", "value": "x"},
    ),
]


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Yield the path to each value in a JSON value."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(place for key, child in inner for place in places(child, (*path, key)))]


def with_changed(part: Any, path: tuple[Any, ...], change: Callable[[Any, Any], None]) -> Any:
    changed = copy.deepcopy(part)
    around = changed
    for key in path[:-1]:
        around = around[key]
    change(around, path[-1])
    return changed


@pytest.mark.slow
@pytest.mark.parametrize("index", [0, 1, 2])
def test_whatever_is_wrong_at_one_place_both_ways_say_the_same(index: int) -> None:
    part = EXAMPLE[index]
    for path in places(part)[1:]:
        for wrong in WRONG:
            body = with_changed(part, path, lambda around, key, wrong=wrong: around.__setitem__(key, wrong))
            assert_same(READERS[index], json.dumps(body).encode())
        assert_same(READERS[index], json.dumps(with_changed(part, path, lambda around, key: around.__delitem__(key))).encode())


@settings(max_examples=examples(300))
@given(st.data())
def test_whatever_is_wrong_at_many_places_both_ways_say_the_same(data: st.DataObject) -> None:
    index = data.draw(st.integers(0, 2))
    part = copy.deepcopy(EXAMPLE[index])
    for _ in range(data.draw(st.integers(1, 4))):
        path = data.draw(st.sampled_from(places(part)[1:]))
        wrong = data.draw(st.sampled_from(WRONG) | st.text(max_size=40))
        part = with_changed(part, path, lambda around, key, wrong=wrong: around.__setitem__(key, wrong))
    assert_same(READERS[index], json.dumps(part, ensure_ascii=data.draw(st.booleans())).encode("utf-8", "replace"))


@pytest.mark.parametrize(
    "body",
    [
        *(b"{}", b"[]", b"null", b"1", b'{"Nm":"a","Nm":"b"}', b'{"CtryOfRes":"DE","Nm":"b"}', b'{"Nm":"a","Other":"\\u0000"}'),
        *(
            b'{ "Nm" : "a" }',
            b'{"Id":{"OrgId":{"LEI":"A"},"PrvtId":{}}}',
            b'{"Id":{}}',
            b'{"Nm":"\\ud83d\\ude00"}',
            '{"Nm":"\u2028"}'.encode(),
        ),
    ],
)
def test_whatever_the_shape_is_both_ways_say_the_same(body: bytes) -> None:
    schema = Schema(TYPES.values())
    assert_same(
        PartReader("any", schema.sequence("Any", *("Nm? Max140Text", "Id? Party38Choice", "CtryOfRes? CountryCode"))), body
    )


def test_every_type_of_the_schema_has_its_strict_one() -> None:
    schema = Schema(TYPES.values())
    for name in TYPES:
        reader = PartReader(name, schema.sequence(f"of {name}", f"Child? {name}"))
        for wrong in WRONG:
            assert_same(reader, json.dumps({"Child": wrong}).encode())
