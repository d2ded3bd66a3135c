"""Copies a release to any URL that Hadoop supports: hdfs:, file:, and others with jars from `spark.options`.

The copy has the layout of its source. `current` is replaced last, so its readers always get a complete release.
"""

from pathlib import Path
from typing import Any

from py4j.java_gateway import java_import
from pyspark.sql import SparkSession

from notification_service.jobs.errors import JobRefused
from notification_service.jobs.spark.errors import SPARK_ERRORS, cause_of
from notification_service.lookups.directory import LookupsDirectory
from notification_service.lookups.manifest import is_version


def copy_release(spark: SparkSession, directory: LookupsDirectory, version: str, url: str, keep: int) -> None:
    """Copy the release, streaming the bytes through the driver. The newest `keep` releases stay there, others are deleted.

    Raises:
        JobRefused: The copy failed; `current` there still names the release that it named before.
    """
    try:
        _Target(spark, url).take(directory, version, keep)
    except SPARK_ERRORS as error:
        raise JobRefused(
            f"{version} is published in {directory.path}, but could not be copied to {url} (copy-to): {cause_of(error)}"
        ) from error


class _Target:
    def __init__(self, spark: SparkSession, url: str) -> None:
        context: Any = spark.sparkContext
        self._gateway = context._gateway  # noqa: SLF001 - pyspark offers no other way to Hadoop.
        self._java = self._gateway.jvm
        java_import(self._java, "org.apache.hadoop.fs.*")
        self._options = context._jsc.hadoopConfiguration()  # noqa: SLF001 - as above.
        self._base = self._java.Path(url)
        self._files = self._base.getFileSystem(self._options)

    def take(self, directory: LookupsDirectory, version: str, keep: int) -> None:
        draft, release = self._at(f"building/{version}"), self._at(f"releases/{version}")
        self._files.mkdirs(self._at("building"))
        self._files.mkdirs(self._at("releases"))
        if not self._files.exists(release):
            self._copy(directory.release(version), draft)
            self._replace(draft, release)
        self._copy(directory.path / "current", self._at("current.new"))
        self._replace(self._at("current.new"), self._at("current"))
        self._sweep(version, keep)

    def _copy(self, source: Path, target: Any) -> None:
        """Copy, replacing what an earlier try has left."""
        self._files.delete(target, True)
        self._files.copyFromLocalFile(False, True, self._java.Path(source.absolute().as_uri()), target)

    def _sweep(self, current: str, keep: int) -> None:
        names = sorted(each.getPath().getName() for each in self._files.listStatus(self._at("releases")))
        others = [name for name in names if is_version(name) and name != current]
        for old in others[: max(0, len(others) - keep + 1)]:
            self._files.delete(self._at(f"releases/{old}"), True)

    def _replace(self, source: Any, target: Any) -> None:
        """Rename with overwriting, atomically if the file system supports that; `FileSystem.rename` cannot overwrite."""
        overwrite = self._java.org.apache.hadoop.fs.Options.Rename.OVERWRITE
        options = self._gateway.new_array(self._java.org.apache.hadoop.fs.Options.Rename, 1)
        options[0] = overwrite
        self._java.FileContext.getFileContext(self._files.getUri(), self._options).rename(source, target, options)

    def _at(self, name: str) -> Any:
        return self._java.Path(self._base, name)
