"""Headers: each name is in one module, and each value is read as it was written."""

import ast
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import domain.headers
from domain.clock import instant_of
from domain.dead_letter import DeadLetterReason
from domain.headers import dead_letter_headers, mark_headers, texts_of
from domain.record import Cut, Origin, Partition

ROOMS = (
    "domain",
    "storage",
    "enrichment",
    "connectors",
    "resequencer",
    "guardian",
    "status",
    "console",
    "simulator",
    "pipeline",
    "daemon",
)
NAMES = {value for name, value in vars(domain.headers).items() if name.isupper() and isinstance(value, str) and "-" in value}
ORIGINS = st.builds(Origin, st.builds(Partition, st.text(), st.integers(0, 999_999_999)), st.integers(0, 2**63 - 1))


def literals(file: Path) -> set[str]:
    return {
        each.value for each in ast.walk(ast.parse(file.read_text())) if isinstance(each, ast.Constant) and each.value in NAMES
    }


def test_no_other_module_spells_the_name_of_a_header():
    modules = [file for room in ROOMS for file in Path(room).rglob("*.py") if file != Path("domain/headers.py")]
    assert len(NAMES) > 12
    assert len(modules) > 300
    assert {str(file): found for file in modules if (found := literals(file))} == {}
    assert literals(Path("domain/headers.py")) == NAMES


@given(ORIGINS)
def test_a_position_is_read_as_it_was_written(origin):
    assert Origin.find(str(origin)) == origin
    assert Partition.find(str(origin.partition)) == origin.partition


@pytest.mark.parametrize("text", ["", "T", "T-0", "T@1", "T-0@", "T-0@-1", "T-00@1", "T-0@01", "T-0@1 ", f"T-0@{2**63}"])
def test_what_is_no_position_is_none(text):
    assert Origin.find(text) is None


def test_a_dead_letters_headers_say_why_where_from_when_and_what_it_was():
    cut = Cut(70_000_000, "ab" * 32)
    headers = dead_letter_headers(DeadLetterReason.TOO_LARGE, "x" * 3_000 + "\udcff", b"T-3@17", 1_774_740_835_941, cut)
    texts = texts_of(headers)
    assert list(texts) == [
        "dead-letter-reason",
        "dead-letter-error",
        "dead-letter-source-position",
        "dead-letter-at",
        "dead-letter-value-length",
        "dead-letter-value-sha256",
    ]
    assert (texts["dead-letter-reason"], len(texts["dead-letter-error"])) == ("too-large", 2_000)
    assert Origin.find(texts["dead-letter-source-position"]) == Origin(Partition("T", 3), 17)
    assert instant_of(texts["dead-letter-at"]) == 1_774_740_835_941
    assert (texts["dead-letter-value-length"], texts["dead-letter-value-sha256"]) == ("70000000", "ab" * 32)


def test_marks_are_there_or_not():
    assert mark_headers(None, is_late=False) == ()
    assert mark_headers("sequence:3", is_late=True) == (("incomplete", b"sequence:3"), ("late", b"true"))


def test_of_several_headers_of_one_name_the_last_one_counts_and_what_is_no_utf_8_is_replaced():
    assert texts_of((("a", b"1"), ("a", b"\xff"))) == {"a": "\ufffd"}
