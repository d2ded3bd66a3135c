"""The directory layout of an archive, on any file system that Hadoop supports, including the local one."""

import errno
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from notification_service.jobs.errors import ArchiveRefused, ArchiveUnavailable
from notification_service.jobs.spark.session import cause_of
from notification_service.jobs.topic_archive.manifest import NAME, RECORDS, DirectoryManifest, decode
from notification_service.jobs.topic_archive.span import Span, find_span, visible

_PATTERN = "*?[]{}\\"


class Place:
    """`location` is a path or a URL. Names are relative to it, with slashes.

    Any call may raise ArchiveUnavailable. Then nothing was changed in part, except by `remove`.
    """

    def __init__(self, spark: SparkSession, location: str) -> None:
        if marks := "".join(sorted(set(location) & set(_PATTERN))):
            problem = f"has {marks} in its name, which Hadoop takes for a pattern: nothing in it would be found"
            raise ArchiveRefused(f"{location}: {problem}. Give it a name without {_PATTERN}")
        self._jvm: Any = spark._jvm  # noqa: SLF001 - pyspark offers no other way to Hadoop.
        self.local = None if "://" in location else Path(location).absolute()
        self.url = location.rstrip("/") if self.local is None else f"file:{self.local}"
        configuration = spark._jsc.hadoopConfiguration()  # noqa: SLF001 - as above.
        with self._translated():
            root = self._path("")
            self._files: Any = root.getFileSystem(configuration)
            self._context: Any = self._jvm.org.apache.hadoop.fs.FileContext.getFileContext(root.toUri(), configuration)

    def __str__(self) -> str:
        return str(self.local or self.url)

    def at(self, *names: str) -> str:
        """Return a name's URL for Spark."""
        return "/".join([self.url, *names])

    def make(self, name: str) -> None:
        """Create the directory if it is missing."""
        with self._translated():
            self._files.mkdirs(self._path(name))

    def exists(self, name: str) -> bool:
        with self._translated():
            return bool(self._files.exists(self._path(name)))

    def names(self, name: str) -> list[str]:
        """Return the names in a directory; empty if there is no such directory."""
        with self._translated():
            if not self._files.exists(self._path(name)):
                return []
            return sorted(each.getPath().getName() for each in self._files.listStatus(self._path(name)))

    def found(self, pattern: str) -> list[str]:
        """Return the names that match; a `*` matches anything without a slash."""
        with self._translated():
            statuses = self._files.globStatus(self._path(pattern)) or []
            return sorted(self._relative(each.getPath()) for each in statuses)

    def size(self, name: str) -> int:
        """Return the bytes of all files below; 0 if there are none."""
        with self._translated():
            return int(self._files.getContentSummary(self._path(name)).getLength()) if self.exists(name) else 0

    def read(self, name: str) -> str:
        with self._translated():
            stream = self._files.open(self._path(name))
            try:
                return str(self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
            finally:
                stream.close()

    def write(self, name: str, text: str) -> None:
        """Write a file in a directory that is not yet published."""
        with self._translated():
            stream = self._files.create(self._path(name), True)
            try:
                stream.write(bytearray(text.encode()))
            finally:
                stream.close()

    def publish(self, source: str, target: str) -> bool:
        """Rename a finished directory in one step. Return False, and change nothing, if `target` exists."""
        if self.local is not None:
            return _publish(self.local / source, self.local / target)
        fs = self._jvm.org.apache.hadoop.fs
        modes = self._jvm.java.lang.reflect.Array.newInstance(fs.Options.Rename.NONE.getClass(), 1)
        modes[0] = fs.Options.Rename.NONE
        try:
            self._context.rename(self._path(source), self._path(target), modes)
        except Py4JJavaError as error:
            if "FileAlreadyExists" in cause_of(error):
                return False
            raise ArchiveUnavailable(f"{self}: {cause_of(error)}") from error
        return True

    def remove(self, name: str) -> None:
        """Remove a directory; it is renamed first, in one step, so that no process can publish it any more."""
        away = f"{name}.removed"
        with self._translated():
            self._files.delete(self._path(away), True)
            if self._files.exists(self._path(name)):
                self._files.rename(self._path(name), self._path(away))
            self._files.delete(self._path(away), True)

    def delete(self, name: str) -> None:
        with self._translated():
            self._files.delete(self._path(name), True)

    def _path(self, name: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(f"{self.url}/{name}" if name else self.url)

    def _relative(self, path: Any) -> str:
        depth = self._path("").depth()
        parts = str(path.toUri().getPath()).strip("/").split("/")
        return "/".join(parts[depth:])

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except Py4JJavaError as error:
            raise ArchiveUnavailable(f"{self}: {cause_of(error)}") from error


def _publish(source: Path, target: Path) -> bool:
    """Rename durably: a power cut leaves all of the directory or nothing."""
    try:
        for directory, _, names in os.walk(source):
            for path in (*(Path(directory, name) for name in names), Path(directory)):
                _sync(path)
        if target.exists():
            return False
        source.rename(target)
        _sync(target.parent)
    except OSError as error:
        if error.errno in (errno.ENOTEMPTY, errno.EEXIST):
            return False
        raise ArchiveUnavailable(f"{target}: {error.strerror or error}") from error
    return True


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


WORK = "work"


class Archive:
    """`<location>/batches/batch=<first>-<last>/topic=<topic>/day=<UTC>/*.parquet`; unfinished directories are in `work`.

    A directory of `batches` appears complete, and never changes.
    """

    def __init__(self, spark: SparkSession, location: str) -> None:
        self._spark = spark
        self.place = Place(spark, location)

    def all_spans(self) -> list[Span]:
        """Return the spans of all complete directories, also of replaced ones."""
        names = self.place.found(f"{RECORDS}/batch=*/{NAME}")
        spans = (find_span(name.split("/")[1]) for name in names)
        return [span for span in spans if span is not None]

    def spans(self) -> list[Span]:
        """Return the spans that count, in order.

        Raises:
            ArchiveRefused: A batch is missing.
        """
        return visible(self.all_spans())

    def find_newest(self) -> DirectoryManifest | None:
        """Return the manifest of the newest batch; None if nothing was archived."""
        spans = self.spans()
        return self.manifest(spans[-1]) if spans else None

    def manifest(self, span: Span) -> DirectoryManifest:
        name = f"{path_of(span)}/{NAME}"
        return decode(self.place.read(name), self.place.at(name))

    def read(self, schema: StructType, directories: Sequence[str]) -> DataFrame:
        """Return the rows of these directories. The schema may also name columns that come from directory names."""
        based = self._spark.read.schema(schema).option("basePath", self.place.at(RECORDS))
        return based.parquet(*directories).select(*schema.fieldNames())

    def directories(self, topic: str, spans: Sequence[Span]) -> list[str]:
        """Return the directories that hold the topic's records of these spans, as paths for Spark."""
        with_records = {each.split("/")[1] for each in self.place.found(f"{RECORDS}/batch=*/topic={topic}")}
        return [self.place.at(path_of(span), f"topic={topic}") for span in spans if span.name in with_records]


def path_of(span: Span) -> str:
    return f"{RECORDS}/{span.name}"
