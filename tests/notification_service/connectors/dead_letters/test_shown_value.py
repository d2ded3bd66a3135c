"""How values of records are shown: formatted, bounded, and never interpreted."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from notification_service.connectors.dead_letters.shown_value import LONGEST, editable_text, shown_value


def test_json_is_indented_and_its_numbers_stay_as_they_are() -> None:
    shown = shown_value(b'{"a":1.10,"b":[1e3]}')
    assert (shown.format, shown.is_cut) == ("JSON", False)
    assert shown.text.splitlines() == ["{", '  "a": 1.10,', '  "b": [', "    1e3", "  ]", "}"]


def test_xml_is_indented_and_an_element_with_text_alone_is_one_line() -> None:
    value = '<?xml version="1.0"?><!-- c --><Doc xmlns="u"><A>1 &amp; 2</A><B/><C><D> x </D></C></Doc>'
    shown = shown_value(value.encode())
    assert shown.format == "XML"
    assert shown.text.splitlines() == [
        '<?xml version="1.0"?>',
        "<!-- c -->",
        '<Doc xmlns="u">',
        "  <A>1 &amp; 2</A>",
        "  <B/>",
        "  <C>",
        "    <D> x </D>",
        "  </C>",
        "</Doc>",
    ]


def test_entities_are_not_resolved() -> None:
    bomb = '<!DOCTYPE x [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;&a;">]><x>&b;</x>'
    assert "<x>&b;</x>" in shown_value(bomb.encode()).text


@pytest.mark.parametrize("value", [b"not json 3", "Straße\r\n".encode(), b"", b"a < b"])
def test_other_text_is_shown_as_it_is(value: bytes) -> None:
    assert shown_value(value) == ("text", value.decode(), False)


def test_other_bytes_are_shown_in_hexadecimal_with_a_bound() -> None:
    shown = shown_value(b"\x00\xffAvro" + bytes(20))
    assert (shown.format, shown.is_cut) == ("hexadecimal", False)
    assert shown.text.splitlines()[0] == "00000000  00 ff 41 76 72 6f 00 00 00 00 00 00 00 00 00 00  ..Avro.........."
    assert shown_value(b"\xff" * 100_000).is_cut


def test_of_a_long_value_the_beginning_is_shown_also_if_a_character_is_cut_in_two() -> None:
    shown = shown_value(b"x" + "ß".encode() * LONGEST)
    assert (shown.format, shown.is_cut) == ("text", True)
    assert set(shown.text) == {"x", "ß"}


def test_what_a_form_would_change_cannot_be_edited_there() -> None:
    assert editable_text(b'{"a": 1}\n') == '{"a": 1}\n'
    assert [editable_text(each) for each in (b"two\r\nlines", b"\xff", b"x" * (LONGEST + 1))] == [None, None, None]


@given(st.text("<>/!-[]?&ab \n") | st.binary(max_size=200).map(lambda each: each.decode("latin-1")))
def test_no_text_is_lost_in_any_xml(text: str) -> None:
    value = f"<{text}"
    shown = shown_value(value.encode())
    if shown.format == "XML":
        assert "".join(shown.text.split()) == "".join(value.split())
