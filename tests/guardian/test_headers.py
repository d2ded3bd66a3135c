"""Headers: each name is in one module, and each value is read as it was written."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from harness.packages import PACKAGES
from hypothesis import given
from hypothesis import strategies as st

import guardian.headers
from guardian.headers import as_cut, cut_headers, dead_letter_headers, mark_headers, texts_of
from resequencer.clock import instant_of
from resequencer.dead_letter import DeadLetterReason
from resequencer.record import Cut, Origin, OutputNumber, Partition, Record

NAMES = {value for name, value in vars(guardian.headers).items() if name.isupper() and name[0] != "_" and isinstance(value, str)}
WORDS = {"channel", "incomplete", "language", "late", "schedule"}
"""Names of headers that are also names of columns, counts and the like: they count only where a header's name stands."""
BARE_LOOP = Path("benchmarks/_bare_loop.py")
"""The least that the work costs in Python: it writes its headers by itself, and is no user of ours."""
ORIGINS = st.builds(Origin, st.builds(Partition, st.text(), st.integers(0, 999_999_999)), st.integers(0, 2**63 - 1))


def literals(text: str) -> set[str]:
    """Return the names of headers that a module spells."""
    places = [(each, set(names_at(each))) for each in ast.walk(ast.parse(text))]
    spelled = {each.value for each, _ in places if isinstance(each, ast.Constant) and isinstance(each.value, str)}
    return {name for name in spelled & NAMES if name not in WORDS or any(name in found for _, found in places)}


def names_at(node: ast.AST) -> Iterator[object]:
    """Yield the constants where the name of a header stands: with a value in bytes, or where headers are asked for one."""
    match node:
        case ast.Tuple(
            elts=[ast.Constant(value=name), ast.Constant(value=bytes()) | ast.Call(func=ast.Attribute(attr="encode"))]
        ):
            yield name
        case ast.Call(func=ast.Attribute(value=asked), args=[ast.Constant(value=name), *_]) if is_of_headers(asked):
            yield name
        case ast.Subscript(value=asked, slice=ast.Constant(value=name)) if is_of_headers(asked):
            yield name
        case ast.Compare(left=ast.Constant(value=name), comparators=[asked]) if is_of_headers(asked):
            yield name


def is_of_headers(node: ast.expr) -> bool:
    return any(word in ast.unparse(node) for word in ("headers", "texts"))


def modules_of(*rooms: str) -> dict[Path, str]:
    return {file: file.read_text(encoding="utf-8") for room in rooms for file in sorted(Path(room).rglob("*.py"))}


def test_no_other_module_spells_the_name_of_a_header():
    modules = modules_of(*PACKAGES, "benchmarks")
    ours, _ = modules.pop(Path("guardian/headers.py")), modules.pop(BARE_LOOP)
    assert len(modules) > 300
    assert {str(file): found for file, text in modules.items() if (found := literals(text))} == {}
    spelled = {each.value for each in ast.walk(ast.parse(ours)) if isinstance(each, ast.Constant)}
    assert spelled >= NAMES > WORDS


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("x = dict(headers)['envelope-id']", {"envelope-id"}),
        ("parent = 'traceparent'", {"traceparent"}),
        ("own = (('late', b'true'),)", {"late"}),
        ("own = (('channel', channel.encode()),)", {"channel"}),
        ("x = texts.get('language')", {"language"}),
        ("x = dict(record.headers)['late']", {"late"}),
        ("x = 'incomplete' in texts", {"incomplete"}),
        ("counts['late'] += 1; column = F.col('channel'); pair = ('late', 1)", set()),
    ],
)
def test_the_spelling_of_a_name_is_found_also_where_it_is_a_word(code, found):
    assert literals(code) == found


def test_the_bare_loop_writes_the_headers_of_a_notification_as_we_do():
    spelled = {each.value for each in ast.walk(ast.parse(BARE_LOOP.read_text())) if isinstance(each, ast.Constant)}
    names = ("NOTIFICATION_ID", "ENVELOPE_ID", "SOURCE_POSITION", "EVENT_NAME", "TRANSACTION_STATUS", "PROCESSING_ENTITY")
    assert {getattr(guardian.headers, each) for each in names} <= spelled


@given(ORIGINS)
def test_a_position_is_read_as_it_was_written(origin):
    assert Origin.find(str(origin)) == origin
    assert Partition.find(str(origin.partition)) == origin.partition


@pytest.mark.parametrize("text", ["", "T", "T-0", "T@1", "T-0@", "T-0@-1", "T-00@1", "T-0@01", "T-0@1 ", f"T-0@{2**63}"])
def test_what_is_no_position_is_none(text):
    assert Origin.find(text) is None


@given(st.builds(OutputNumber, *[st.builds(Partition, st.text(), st.integers(0, 999_999_999)), st.integers(0, 2**63 - 1)]))
def test_a_number_is_read_as_it_was_written(number):
    assert OutputNumber.find(str(number)) == number


@pytest.mark.parametrize("text", ["", "T", "T-0", "T#1", "T-0#", "T-0#-1", "T-0# 5", "T-0#1_0", "T-0#01", f"T-0#{2**63}"])
def test_what_is_no_number_is_none(text):
    assert OutputNumber.find(text) is None


POSITIONS = (
    r"""rpartition\(b?["'][@#-]["']\)|partition\(b?["']@["']\)|split\(b?["'][@#]["']""",
    r"""\}-\{[^{}]*\}[@#]\{|\{partition\}[@#]\{|[Pp]artition[^{}]*\}#\{""",
)
"""How positions and numbers are taken apart, and put together, beside `Origin`, `OutputNumber` and `Partition`."""
OTHERWISE = {
    "resequencer/record.py": "it is the one place",
    "storage/redis/settings.py": "the user before an address",
    "benchmarks/_bare_loop.py": "as little as possible is ours",
    "benchmarks/_kafka_loop.py": "as little as possible is ours",
}


def test_no_other_module_reads_or_writes_the_text_of_a_position():
    modules = {str(file): text for file, text in modules_of(*PACKAGES, "benchmarks").items()}
    found = {file for file, text in modules.items() if re.search("|".join(POSITIONS), text)}
    assert found == OTHERWISE.keys()


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


def test_a_record_that_was_cut_on_its_way_says_so_in_headers_which_become_its_cut():
    cut = Cut(70_000_000, "ab" * 32)
    own = (("a", b"1"), ("b", b"2"))
    record = Record(Origin(Partition("T", 0), 1), b"beginning", b"k", (own[0], *cut_headers(cut), own[1]))
    assert as_cut(record) == Record(record.origin, b"beginning", b"k", own, cut=cut)


@pytest.mark.parametrize(
    "headers",
    [
        (),
        (("dead-letter-value-length", b"5"),),
        (("dead-letter-value-length", b"five"), ("dead-letter-value-sha256", b"ab" * 32)),
        (("dead-letter-value-length", b"5"), ("dead-letter-value-sha256", b"AB")),
    ],
)
def test_headers_that_say_nothing_of_a_cut_stay_what_they_are(headers: Any):
    record = Record(Origin(Partition("T", 0), 1), b"value", None, headers)
    assert as_cut(record) is record
