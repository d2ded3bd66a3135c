"""Where the stream continues after the archive."""

import pytest

from notification_service.connectors.kafka.topic_ends import TopicEnds
from notification_service.jobs.errors import ArchiveRefused
from notification_service.jobs.topic_archive.manifest import beginning
from resequencer.record import Partition


def topic_ends(**logs: tuple[int, int]) -> TopicEnds:
    """The first offset and the end of each partition of `in_0`."""
    found = {Partition(name[:-2], int(name[-1])): span for name, span in logs.items()}
    ends = {each: end for each, (_, end) in found.items()}
    return TopicEnds({each: start for each, (start, _) in found.items()}, ends, ends, {})


def test_it_goes_on_where_the_archive_ends_and_begins_with_what_the_brokers_have_of_the_rest() -> None:
    starts = beginning({"in": {0: 5}, "gone": {0: 9}}, topic_ends(in_0=(2, 9), in_1=(3, 8), out_0=(0, 0)), "archive")
    assert starts == {"in": {0: 5, 1: 3}, "out": {0: 0}}


def test_what_the_retention_took_before_it_was_archived_is_reported() -> None:
    with pytest.raises(ArchiveRefused) as refused:
        beginning({"in": {0: 5}}, topic_ends(in_0=(6, 9)), "archive")
    assert "in-0: archive ends at offset 5, but the brokers' first offset is 6" in str(refused.value)
    assert "retention.ms" in str(refused.value)


def test_another_topic_of_the_same_name_is_not_taken_for_the_old_one() -> None:
    with pytest.raises(ArchiveRefused, match="in-0: archive ends at offset 5, but the brokers' log ends at 4"):
        beginning({"in": {0: 5}}, topic_ends(in_0=(0, 4)), "archive")
    with pytest.raises(ArchiveRefused, match="in-1: archive has records of it, but the brokers do not have it"):
        beginning({"in": {0: 5, 1: 5}}, topic_ends(in_0=(0, 9)), "archive")
