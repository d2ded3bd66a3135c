"""Storage `infinispan`: its stored values are read as they were written; any other value is refused."""

from array import array
from contextlib import suppress

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from resequencer.storage_port import Header, StorageRefused
from storage.infinispan.cache import PageMemory
from storage.infinispan.layout.index import (
    MAX_MERGED,
    PAGE_BITS,
    DeadCopy,
    IndexBlock,
    UnitIndex,
    decode_index_block,
    encode_index_block,
    entries_of,
    from_bytes,
    index_block_of,
    to_bytes,
)
from storage.infinispan.layout.page_table import Page, decode_page, encode_page, packed
from storage.infinispan.layout.segment import (
    PART_BYTES,
    CommitVersion,
    ExpiryWatermark,
    Kind,
    Segment,
    SegmentManifest,
    UnitRecord,
    Value,
    combined,
    cut,
    decode_segment,
    encode_segment,
    joined,
    token_of,
    token_text,
    version_of,
)

units = st.text(min_size=1, max_size=20)
offsets = st.integers(0, 5)
instants = st.integers(0, 2**48)
waits = st.none() | st.tuples(
    instants, st.sampled_from(("deadline", "retry")), instants, st.text(), st.text(), st.integers(0, 9), st.integers(0, 9)
)
changes = st.builds(
    UnitRecord,
    st.just("a"),
    st.binary(max_size=3),
    instants,
    waits,
    st.dictionaries(offsets, st.binary(max_size=3), max_size=4).map(lambda stash: tuple(stash.items())),
    st.lists(offsets, max_size=3, unique=True).map(tuple),
    st.none() | st.binary(max_size=3),
    st.booleans(),
)


def whole(unit: str, changed_at: int = 0, size: int = 0, waiting: bool = False) -> UnitRecord:
    row = (1, "deadline", 0, "sequence:3", "SEQUENCE", 1, 1) if waiting else None
    return UnitRecord(unit, b"s" * size, changed_at, row)


def _no_other_part(name: str) -> bytes:
    raise AssertionError(name)


# Values.


@given(st.binary(max_size=200), st.sampled_from(Kind))
def test_a_value_comes_back_as_it_was_written(payload, kind):
    ((name, body),) = cut(Value(kind, "it", payload))
    assert joined(kind, name, body, _no_other_part) == payload


def test_a_large_value_is_cut_and_its_first_part_names_the_others():
    payload = bytes(range(256)) * (PART_BYTES // 100)
    parts = dict(cut(Value(Kind.SEGMENT, "it", payload)))
    assert list(parts) == ["it", "it~1", "it~2"]
    assert max(map(len, parts.values())) == PART_BYTES
    assert joined(Kind.SEGMENT, "it", parts.pop("it"), parts.pop) == payload
    assert not parts


@given(st.data())
def test_whatever_is_changed_in_a_value_is_noticed(data):
    ((_, body),) = cut(Value(Kind.PAGE, "it", b"payload"))
    at = data.draw(st.integers(0, len(body) - 1))
    changed = body[:at] + bytes([body[at] ^ data.draw(st.integers(1, 255))]) + body[at + 1 :]
    with pytest.raises(StorageRefused, match="it: "):
        joined(Kind.PAGE, "it", changed, _no_other_part)


@pytest.mark.parametrize("length", range(29))
def test_a_value_that_is_cut_is_refused(length):
    ((_, body),) = cut(Value(Kind.PAGE, "it", b"some payload"))
    with pytest.raises(StorageRefused, match="clear it to start empty"):
        joined(Kind.PAGE, "it", body[:length], _no_other_part)


@pytest.mark.parametrize(("version", "remedy"), [(5, "start the newer version"), (1, "clear it to start empty")])
def test_a_format_that_is_not_read_is_refused_with_the_remedy(version, remedy):
    ((_, body),) = cut(Value(Kind.PAGE, "it", b"payload", version))
    with pytest.raises(StorageRefused, match=f"it: has format {version}, .*{remedy}"):
        joined(Kind.PAGE, "it", body, _no_other_part)


@pytest.mark.parametrize(("fields", "version"), [({}, 2), ({"orders": "some"}, 3), ({"source_state": "some"}, 4)])
def test_a_version_that_does_not_know_a_field_refuses_a_header_that_has_it(fields, version):
    segment = Segment(Header("0000000a", 1, **fields))
    ((_, body),) = cut(Value(Kind.SEGMENT, "it", encode_segment(segment), segment.format))
    assert body[4] == version
    assert decode_segment("it", joined(Kind.SEGMENT, "it", body, _no_other_part)) == segment


def test_what_another_program_wrote_is_refused_with_the_remedy():
    with pytest.raises(StorageRefused, match="use a separate cache"):
        joined(Kind.PAGE, "it", b"something of another program", _no_other_part)


@pytest.mark.parametrize("decode", [decode_segment, decode_page, decode_index_block])
@given(st.binary(max_size=30))
def test_what_is_whole_but_makes_no_sense_is_refused(decode, payload):
    with suppress(StorageRefused):
        decode("it", payload)


# Records.


@given(st.none() | changes, st.lists(changes, max_size=6), st.integers(0, 6))
def test_changes_that_were_taken_in_may_come_again(base, later, seen):
    base = combined(None, [base]) if base is not None else None
    in_a_page = combined(base, later[:seen])
    assert combined(in_a_page, later) == combined(base, later)


@given(st.lists(changes, min_size=1, max_size=6))
def test_a_whole_unit_has_nothing_that_is_still_to_be_removed(all_changes):
    record = combined(None, all_changes)
    assert (record.removed, record.begins) == ((), False)
    assert list(record.stash) == sorted(record.stash)


# Pages.


@given(st.lists(st.builds(whole, units, instants, st.integers(0, 900))))
def test_pages_hold_all_records_in_their_order_and_are_no_larger_than_they_may_be(records):
    pages = list(packed(records, 1_000))
    assert [record for page in pages for record in page.records] == records
    assert all(page.size <= 1_000 or len(page.records) == 1 for page in pages)
    assert all(decode_page("it", encode_page(page)).records == tuple(page.records) for page in pages)


@given(st.builds(whole, units, instants, st.integers(0, 900), st.booleans()))
def test_a_record_takes_no_more_than_it_was_counted_for(record):
    assert len(encode_page(Page([record], 0))) <= record.size + 3 * len(record.unit)


def test_the_memory_of_pages_keeps_those_that_were_used_last():
    memory, pages = PageMemory(300), [Page([], 100) for _ in range(4)]
    for name, page in zip("abc", pages, strict=False):
        memory.keep(name, page)
    assert memory.find("a") is pages[0]
    memory.keep("d", pages[3])
    assert [memory.find(name) is not None for name in "abcd"] == [True, False, True, True]
    memory.drop("a")
    memory.keep("b", pages[1])
    assert [memory.find(name) is not None for name in "abcd"] == [False, True, True, True]


# The unit index.


@given(st.lists(st.lists(units, max_size=5), max_size=20), st.integers(0, 25), st.integers(0, 20))
def test_the_directory_names_every_page_that_has_a_unit_the_newest_first(pages, tail, tidied):
    unit_index = UnitIndex()
    for number, placed in enumerate(pages):
        unit_index.add(entries_of((unit, number) for unit in placed), number)
    for _ in range(tidied):
        unit_index.tidy(tail)
    for unit in {unit for placed in pages for unit in placed}:
        named = unit_index.find(unit, tail)
        assert named == sorted(named, reverse=True)
        assert {number for number, placed in enumerate(pages) if unit in placed and number >= tail} <= set(named)
        assert all(number >= tail for number in named)


def test_the_directory_has_few_runs_and_none_that_only_names_what_is_gone():
    unit_index = UnitIndex()
    for number in range(400):
        unit_index.add(entries_of((f"{number}-{each}", number) for each in range(10)), number)
        unit_index.tidy(max(0, number - 100))
    assert len(unit_index._runs) <= 8
    assert sum(len(run.entries) for run in unit_index._runs) < 2_000


def test_long_runs_are_not_merged_any_more():
    unit_index = UnitIndex()
    for number in range(2):
        unit_index.add(array("Q", range(MAX_MERGED // 2 + 1)), number)
        unit_index.tidy(0)
    assert len(unit_index._runs) == 2


def test_entries_lie_with_the_least_significant_byte_first(monkeypatch):
    entries = array("Q", [1, 2**PAGE_BITS])
    expected = bytes([1, *[0] * 7, *[0] * 4, 4, 0, 0, 0])
    assert to_bytes(entries) == expected
    assert from_bytes(expected) == entries
    monkeypatch.setattr("sys.byteorder", "big")
    turned = array("Q", entries)
    turned.byteswap()
    assert from_bytes(to_bytes(turned)) == turned
    assert to_bytes(turned) == expected


# Blocks.


def test_an_index_block_says_what_its_pages_have():
    records = [whole("a", 5), whole("b", 7, waiting=True), whole("c", 3)]
    block = index_block_of(8, [(records, 1), ([whole("d", 9, waiting=True)], 2)], ["e"], [DeadCopy(3, 4, waited=True)])
    assert decode_index_block("it", encode_index_block(block)) == block
    assert [msgspec.structs.astuple(row) for row in block.rows] == [(3, 1, 3, 5, 1), (1, 1, -1, -1, 2)]
    assert ([unit for unit, _ in block.waits], block.woken, block.end) == (["b", "d"], ("e",), 10)
    assert block.dead_copies() == [DeadCopy(3, 4, waited=True)]


@given(st.integers(0, 2**34 - 1), st.integers(0, 2**15 - 1), st.booleans())
def test_dead_copies_come_back_as_they_were(page, slot, waited):
    copy = DeadCopy(page, slot, waited)
    assert decode_index_block("it", encode_index_block(IndexBlock(0, dead=(copy.packed(),)))).dead_copies() == [copy]


compactions = st.lists(st.tuples(st.sets(st.sampled_from("abcd")), st.sets(st.sampled_from("abcd"))), max_size=6)


@given(compactions)
def test_an_index_block_that_was_made_longer_says_the_same_as_its_parts(changes):
    long, apart, waiting = IndexBlock(0), set(), set()
    for wakes, waits_now in changes:
        woken = wakes - waits_now
        part = index_block_of(long.end, [([whole(unit, waiting=True) for unit in sorted(waits_now)], 1)], sorted(woken), [])
        long = long.followed_by(part)
        apart = apart - woken | waits_now
        waiting |= waits_now
    assert {unit for unit, _ in long.waits} == apart
    assert not apart & set(long.woken)
    assert long.end == len(changes)


# Segments.


@given(st.integers(0, 2**31 - 1), st.integers(0, 2**32 - 1))
def test_a_counter_holds_token_and_number_and_never_overflows(token, commit):
    version = CommitVersion(token, commit)
    assert version_of(version.packed()) == version
    assert 0 <= version.packed() < 2**63


@given(st.text())
def test_any_text_makes_a_token_of_31_bits_that_is_not_that_of_an_unopened_partition(text):
    assert 0 < token_of(text) < 2**31
    assert int(token_text(token_of(text)), 16) == token_of(text)


@given(st.lists(changes, max_size=3))
def test_a_segment_comes_back_as_it_was_written(all_changes):
    header = Header("0a", 3, 2**60, 2**53, 7, (("0b", 2),), "log", 2**40)
    manifest = SegmentManifest((), (), ((0, 5),), 1, 2, ("gone",), ExpiryWatermark(7, (("a", 5),)))
    segment = Segment(header, "attempt", manifest, ((1, b"blocks"),), (4,), tuple(all_changes))
    assert decode_segment("it", encode_segment(segment)) == segment
    assert segment.version == CommitVersion(10, 3)
