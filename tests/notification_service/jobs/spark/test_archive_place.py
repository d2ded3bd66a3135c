"""The archive's directory: on this machine by its path, or by a URL on any file system that Hadoop knows."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from notification_service.jobs.errors import ArchiveRefused, ArchiveUnavailable
from notification_service.jobs.topic_archive.layout import Place


@pytest.fixture(params=["{}", "file://{}"], ids=["path", "url"])
def place(request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path) -> Place:
    made = Place(spark, request.param.format(tmp_path / "archive with spaces"))
    made.make("shown")
    return made


def test_a_finished_directory_gets_its_name_in_one_step_and_no_other_takes_it(place: Place) -> None:
    place.write("work/1/note", "ä")
    assert place.publish("work/1", "shown/batch=1-1")
    assert place.read("shown/batch=1-1/note") == "ä"
    assert not place.exists("work/1")
    place.write("work/2/note", "other")
    assert not place.publish("work/2", "shown/batch=1-1")
    assert place.read("shown/batch=1-1/note") == "ä"
    assert place.names("shown/batch=1-1") == ["note"]
    assert place.read("work/2/note") == "other"


def test_who_works_in_a_directory_that_was_taken_away_can_publish_nothing(place: Place) -> None:
    place.write("work/1/note", "x")
    place.remove("work")
    place.remove("work")
    with pytest.raises(ArchiveUnavailable):
        place.publish("work/1", "shown/batch=1-1")
    assert place.names("shown") == []


def test_what_is_there_is_found_by_its_pattern(place: Place) -> None:
    for name in ("shown/batch=1-1/_SUCCESS", "shown/batch=2-2/topic=a/file", "shown/batch=1-1/topic=a/file"):
        place.write(name, "12345")
    assert place.found("shown/batch=*/_SUCCESS") == ["shown/batch=1-1/_SUCCESS"]
    assert place.found("shown/batch=*/topic=a") == ["shown/batch=1-1/topic=a", "shown/batch=2-2/topic=a"]
    assert place.found("nowhere/*") == []
    assert place.names("nowhere") == []
    assert place.size("shown/batch=2-2") >= 5
    assert place.size("nowhere") == 0


def test_a_file_system_that_fails_is_reported_by_the_archive(place: Place) -> None:
    with pytest.raises(ArchiveUnavailable, match="archive with spaces"):
        place.read("nowhere")


def test_a_file_system_that_spark_does_not_know_is_refused(spark: SparkSession) -> None:
    with pytest.raises(ArchiveUnavailable, match="nowhere"):
        Place(spark, "nowhere://host/path")


@pytest.mark.parametrize("name", ["a[1]", "a*", "{a,b}"])
def test_a_name_that_hadoop_takes_for_a_pattern_is_refused(spark: SparkSession, tmp_path: Path, name: str) -> None:
    with pytest.raises(ArchiveRefused, match="which Hadoop takes for a pattern"):
        Place(spark, str(tmp_path / name))
