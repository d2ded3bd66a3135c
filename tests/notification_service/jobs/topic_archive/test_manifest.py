"""The manifest of a directory of an archive."""

import pytest

from notification_service.jobs.errors import ArchiveRefused
from notification_service.jobs.topic_archive.manifest import ArchivedTopic, DirectoryManifest, covers, decode, encode, joined

MANIFEST = DirectoryManifest(
    3, 3, 1_774_740_835_941, {"in": ArchivedTopic(2, 900)}, {"in": {0: 0, 12: 3}}, {"in": {0: 7, 12: 9}}, {0: 5}
)


def test_it_is_read_as_it_was_written() -> None:
    assert decode(encode(MANIFEST), "there") == MANIFEST
    assert (MANIFEST.records, MANIFEST.bytes) == (2, 900)


def test_a_newer_one_is_refused_with_the_remedy() -> None:
    newer = encode(MANIFEST).replace('"format": 1', '"format": 2, "shape": "other"').replace('"first": 3', '"first": "three"')
    with pytest.raises(ArchiveRefused, match="there: it has format 2; read it with the newer version that wrote it"):
        decode(newer, "there")


@pytest.mark.parametrize("text", ["", "{", "{}", "[]", '{"format": 1}'])
def test_a_damaged_one_is_refused_by_name(text: str) -> None:
    with pytest.raises(ArchiveRefused, match="there: it is damaged"):
        decode(text, "there")


def test_ends_cover_others_where_each_partition_does() -> None:
    assert covers({"in": {0: 5, 1: 2}}, {"in": {0: 5}})
    assert covers({}, {"in": {0: 0}})
    assert not covers({"in": {0: 5}}, {"in": {0: 5, 1: 1}})
    assert not covers({"in": {0: 5}}, {"in": {0: 6}})
    assert not covers({"in": {0: 5}}, {"out": {0: 1}})


def test_a_topic_that_is_no_longer_archived_keeps_its_end() -> None:
    assert joined([{"in": {0: 5, 1: 1}, "old": {0: 3}}, {"in": {0: 6}}]) == {"in": {0: 6, 1: 1}, "old": {0: 3}}
