"""The line format of the file transport, written and read."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from notification_service.connectors.line_format import Defect, Line, decode_line, encode_line, is_blank, partition_of

NAMES = st.text(st.characters(exclude_categories=("Cs",)), max_size=8)
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(st.characters(exclude_categories=("Cs",))),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=10,
)
VALUES = (
    st.binary()
    | st.text(st.characters(exclude_categories=("Cs",))).map(str.encode)
    | JSON_VALUES.map(lambda v: json.dumps(v).encode())
)
LINES = st.builds(
    Line,
    value=VALUES,
    key=st.none() | st.binary(max_size=20),
    headers=st.lists(st.tuples(NAMES, st.binary(max_size=10) | NAMES.map(str.encode)), max_size=4).map(tuple),
)


@given(LINES, st.booleans(), st.none() | NAMES)
def test_what_is_encoded_comes_back_the_same(line, verbatim, number):
    encoded = encode_line(line, number=number, verbatim=verbatim)
    assert encoded.endswith(b"\n")
    assert encoded.count(b"\n") == 1
    assert decode_line(encoded[:-1]) == line
    assert decode_line(encoded[:-1] + b"\r") == line


@given(LINES, st.booleans())
def test_every_json_reader_understands_what_is_encoded(line, verbatim):
    assert isinstance(json.loads(encode_line(line, verbatim=verbatim)), dict)


@given(LINES, st.none() | NAMES, st.dictionaries(NAMES, NAMES | st.none(), max_size=3))
def test_a_value_that_is_known_to_be_an_object_gives_the_same_line(line, number, value):
    of_object = Line(json.dumps(value).encode(), line.key, line.headers)
    assert encode_line(of_object, number=number, is_object=True) == encode_line(of_object, number=number)


@given(st.binary() | st.text().map(lambda text: text.encode("utf-8", "surrogatepass")))
def test_any_bytes_are_a_line_or_a_defect(data):
    assert isinstance(decode_line(data), Line | Defect)


@given(LINES, st.data())
def test_a_mangled_line_is_a_line_or_a_defect(line, data):
    encoded = bytearray(encode_line(line)[:-1])
    at = data.draw(st.integers(0, len(encoded) - 1))
    encoded[at] = data.draw(st.integers(0, 255))
    assert isinstance(decode_line(bytes(encoded)), Line | Defect)


def test_a_byte_order_mark_at_the_beginning_is_no_part_of_a_line():
    assert decode_line(b'\xef\xbb\xbf{"value": {}}') == Line(b"{}")
    blank, other = (b"", b"\r", b" \t", b"\xef\xbb\xbf "), (b"{}", b"\xef\xbb\xbf{}", b"\x00", b"\xef")
    assert [is_blank(each) for each in (*blank, *other)] == [True] * 4 + [False] * 4


def test_a_value_object_is_its_raw_bytes():
    line = b'{"key": "uow-1", "headers": {"schema-version": "2"}, "value": {"a" : 1.50,  "b":"\\u00fc" } }'
    assert decode_line(line) == Line(b'{"a" : 1.50,  "b":"\\u00fc" }', b"uow-1", (("schema-version", b"2"),))


def test_a_value_string_stands_for_its_bytes():
    assert decode_line('{"value": "<a>ü\\n\\u0000</a>"}'.encode()) == Line("<a>ü\n\x00</a>".encode())


def test_a_value_in_base64_stands_for_bytes_that_are_not_utf8():
    assert decode_line(b'{"value-base64": "/wA="}') == Line(b"\xff\x00")


@pytest.mark.parametrize("verbatim", [False, True])
@pytest.mark.parametrize("is_object", [False, True])
def test_a_null_value_is_neither_an_empty_one_nor_the_text_null(verbatim, is_object):
    null = encode_line(Line(None, b"k"), verbatim=verbatim, is_object=is_object)
    assert null == b'{"key":"k","value-base64":null}\n'
    others = [decode_line(encode_line(Line(value, b"k"), verbatim=verbatim)) for value in (b"", b"null")]
    assert [decode_line(null), *others] == [Line(value, b"k") for value in (None, b"", b"null")]


@pytest.mark.parametrize("value", [b"null", b"5", b"[1, 2]", b"true"])
def test_any_other_value_stands_for_its_own_bytes(value):
    assert decode_line(b'{"value": %b}' % value) == Line(value)


@pytest.mark.parametrize(
    "line", [b'{"value":{}}', b'{"key":null,"headers":null,"value":{}}', b'{"value":{},"number":7,"more":[]}']
)
def test_key_and_headers_are_optional_and_other_fields_ignored(line):
    assert decode_line(line) == Line(b"{}")


BAD_LINES = {
    b"": "truncated",
    b"hello": "malformed",
    b"[]": "Expected `object`",
    b"7": "Expected `object`",
    b'{"value": {}} {"value": {}}': "trailing",
    b'{"value": {"a": }}': "malformed",
    b'{"key": "a"}': "`value`",
    b'{"key": 5, "value": {}}': "$.key",
    b'{"headers": {"a": 1}, "value": {}}': "$.headers",
    b'{"headers": "a", "value": {}}': "$.headers",
    b'{"headers": [["a", "b"]], "value": {}}': "$.headers",
    b'{"headers": [{"name": "a"}], "value": {}}': "$.headers",
    b'{"headers": [{"name": "a", "value": "b", "value-base64": "YQ=="}], "value": {}}': "$.headers",
    b'{"value-base64": "a"}': "base64",
    b'{"value-base64": "Y!Q="}': "base64",
    b'{"value-base64": "\\u00fc"}': "base64",
    b'{"value": {}, "value-base64": null}': "both",
    b'{"value": {}, "value-base64": "YQ=="}': "both",
    b'{"key": "a", "key-base64": "YQ==", "value": {}}': "both",
    b'{"value": {"a": "\xff"}}': "not UTF-8 (byte 17)",
    b'{"value": "\xc3"}': "not UTF-8",
    b'{"value": "\\ud800"}': "",
    b'{"value": ' + b"[" * 10_000 + b"]" * 10_000 + b"}": "nested too deep",
    b'{"value": ' + b'{"a":' * 10_000 + b"1" + b"}" * 10_000 + b"}": "nested too deep",
    b"\xef\xbb\xbf" * 2 + b'{"value": {}}': "malformed",
    b'{"value": {}}' + b"\xef\xbb\xbf": "malformed",
}


@pytest.mark.parametrize("line", BAD_LINES, ids=lambda line: repr(line[:40]))
def test_a_line_that_is_no_record_says_why(line):
    defect = decode_line(line)
    assert isinstance(defect, Defect)
    assert BAD_LINES[line] in defect.problem


def test_an_object_is_embedded_as_it_stands():
    assert encode_line(Line(b'{"a": 1}', b"k", (("h", b"v"),)), number="T-0#1") == (
        b'{"key":"k","headers":{"h":"v"},"value":{"a": 1},"number":"T-0#1"}\n'
    )


@pytest.mark.parametrize("value", [b'{"a": 1}', b"<x/>", b'{"a":\n1}', b"{", b'{},"number":{}'])
def test_a_verbatim_value_is_a_string(value):
    assert json.loads(encode_line(Line(value), verbatim=True)) == {"value": value.decode()}


@pytest.mark.parametrize("value", [b"<x/>", b'{"a":\n1}', b"{", b'{},"number":{}', b"{},{}", b' {"a":1}', b"{}x}"])
def test_what_is_no_object_on_one_line_is_a_string(value):
    assert json.loads(encode_line(Line(value))) == {"value": value.decode()}


def test_control_characters_by_the_million_do_not_blow_a_line_up():
    value = b"\x00" * 1_000_000
    encoded = encode_line(Line(value), verbatim=True)
    assert len(encoded) < 2 * len(value)
    assert decode_line(encoded[:-1]) == Line(value)


def test_headers_are_an_array_only_where_an_object_would_lose_something():
    assert json.loads(encode_line(Line(b"", headers=(("a", b"1"), ("a", b"\xff")))))["headers"] == [
        {"name": "a", "value": "1"},
        {"name": "a", "value-base64": "/w=="},
    ]


def test_the_partition_of_a_key_never_changes():
    assert [partition_of(key, 8) for key in (b"uow-1", b"uow-2", b"", "ü".encode())] == [7, 5, 0, 5]


def test_keys_spread_over_the_partitions():
    counts = [0] * 7
    for each in range(7_000):
        counts[partition_of(b"uow-%d" % each, 7)] += 1
    assert min(counts) > 850
