"""A release that is copied through Hadoop: readers of the copy find all of it."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from harness.published_lookups import NOW, publish
from pyspark.sql import SparkSession

from notification_service.jobs.errors import JobRefused
from notification_service.jobs.lookups.shards import copy_release
from notification_service.lookups.directory import LookupsDirectory
from notification_service.lookups.release import open_release


@pytest.fixture
def directory(tmp_path: Path) -> LookupsDirectory:
    return LookupsDirectory(tmp_path / "lookups")


@pytest.fixture(params=["file", "viewfs"])
def url(request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path) -> Iterator[str]:
    """The URL of `copy` under `tmp_path`: as a file, and through another kind of file system."""
    target = (tmp_path / "copy").as_uri()
    link = "fs.viewfs.mounttable.shared.link./lookups"
    options = spark.sparkContext._jsc.hadoopConfiguration()
    options.set(link, target)
    (tmp_path / "copy").mkdir()
    yield target if request.param == "file" else "viewfs://shared/lookups"
    options.unset(link)


def test_each_copy_becomes_current_when_it_is_whole_and_old_ones_go(
    spark: SparkSession, directory: LookupsDirectory, url: str, tmp_path: Path
) -> None:
    copy = LookupsDirectory(tmp_path / "copy")
    versions = []
    for number in range(3):
        rows = {b"k%05d" % key: b"v%d-%d" % (key, number) for key in range(1_000)}
        versions.append(publish(directory, {"t": rows, "u": {}}, 2, NOW + number).version)
        for _ in range(2):  # A second copy does no harm.
            copy_release(spark, directory, versions[-1], url, keep=2)
        release = open_release(copy, copy.get_current())
        assert (release.version, release.find("t", b"k00007")) == (versions[-1], b"v7-%d" % number)
        release.close()
    assert copy.versions() == versions[1:]
    assert list(copy.building.glob("*")) == []


def test_as_many_copies_stay_as_are_to_be_kept(spark: SparkSession, directory: LookupsDirectory, tmp_path: Path) -> None:
    copy = LookupsDirectory(tmp_path / "copy")
    versions = []
    for number in range(6):
        versions.append(publish(directory, {"t": {}}, 1, NOW + number).version)
        copy_release(spark, directory, versions[-1], (tmp_path / "copy").as_uri(), keep=4)
        assert copy.versions() == versions[-4:]


def test_what_cannot_be_copied_is_reported_with_its_place(
    spark: SparkSession, directory: LookupsDirectory, tmp_path: Path
) -> None:
    version = publish(directory, {"t": {}}).version
    (tmp_path / "taken").write_text("a file")
    for url, text in (((tmp_path / "taken").as_uri(), "taken"), ("nowhere://x/y", "nowhere")):
        with pytest.raises(JobRefused, match=rf"{version} is published in .*could not be copied to {url} \(copy-to\): .*{text}"):
            copy_release(spark, directory, version, url, keep=2)
