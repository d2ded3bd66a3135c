"""The metadata of a committed offset: encoding, decoding, and the refusal of other programs' metadata."""

from contextlib import suppress
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from guardian.ports import TransportRefused
from notification_service.connectors.kafka.core.offset_metadata import MAX_CHARACTERS, OffsetMetadata, find_metadata

TOPIC = UUID("89f6241c-3905-4c3b-8d80-3abb9a0b5a50")


def test_it_reads_as_it_is_documented() -> None:
    encoded = OffsetMetadata(TOPIC, 4, '["b5c1",17,42]').encode("t-0")
    assert encoded == 'resequencer/1 ifYkHDkFTDuNgDq7mgtaUA 4 ["b5c1",17,42]'


@given(st.uuids(), st.integers(1, 10**9 - 1), st.text(max_size=4_000))
def test_any_text_comes_back_as_it_was(topic_id: UUID, partitions: int, text: str) -> None:
    metadata = OffsetMetadata(topic_id, partitions, text)
    assert find_metadata(metadata.encode("t-0"), "t-0") == metadata


@given(st.text())
def test_anything_that_another_program_wrote_is_not_read_as_ours(text: str) -> None:
    assert find_metadata(text, "t-0") is None or text.startswith("resequencer/1 ")


@given(st.text(alphabet="resequencer/ 12AZaz_-09éx\n\x00", max_size=60), st.integers(0, 60), st.binary(max_size=5))
def test_what_is_forged_or_damaged_is_not_read_as_ours_or_is_refused(text: str, at: int, damage: bytes) -> None:
    whole = OffsetMetadata(TOPIC, 4, text).encode("t-0")
    forged = whole[:at] + damage.decode("latin-1") + whole[at + len(damage) :]
    with suppress(TransportRefused):
        found = find_metadata(forged, "t-0")
        assert found is None or isinstance(found.topic_id, UUID)


@pytest.mark.parametrize(
    "text", [None, "", "resequencer", "resequencer/1", "resequencer/0 x", '["a",1,2]', "resequencer/1 short 4 x"]
)
def test_what_has_another_form_is_another_programs(text: str | None) -> None:
    assert find_metadata(text, "t-0") is None


def test_a_newer_format_is_refused_with_the_remedy() -> None:
    with pytest.raises(TransportRefused, match="t-0: its position has format 2; start the newer version that wrote it"):
        find_metadata("resequencer/2 anything", "t-0")


def test_the_longest_text_that_brokers_take_is_taken_and_a_longer_one_refused() -> None:
    length = MAX_CHARACTERS - len(OffsetMetadata(TOPIC, 4, "").encode("t-0"))
    assert length >= MAX_CHARACTERS - 64
    assert len(OffsetMetadata(TOPIC, 4, "é" * length).encode("t-0")) == MAX_CHARACTERS
    with pytest.raises(TransportRefused, match="t-0: the metadata of its position has 4097 characters"):
        OffsetMetadata(TOPIC, 4, "é" * (length + 1)).encode("t-0")
