"""A directory on any file system that Hadoop knows, this machine's own too."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from pipeline.archive.errors import ArchiveUnavailable
from pipeline.spark.errors import cause_of


class Place:
    """`location` is a path or a URL. Names are relative to it, with slashes.

    Any call raises ArchiveUnavailable if the file system fails: nothing of what was asked is half done, but for `remove`.
    """

    def __init__(self, spark: SparkSession, location: str) -> None:
        self._jvm: Any = spark._jvm  # noqa: SLF001 - there is no other way to Hadoop.
        self.local = None if "://" in location else Path(location).absolute()
        self.url = location.rstrip("/") if self.local is None else f"file:{self.local}"
        configuration = spark._jsc.hadoopConfiguration()  # noqa: SLF001 - the same.
        with self._translated():
            root = self._path("")
            self._files: Any = root.getFileSystem(configuration)
            self._context: Any = self._jvm.org.apache.hadoop.fs.FileContext.getFileContext(root.toUri(), configuration)

    def __str__(self) -> str:
        return str(self.local or self.url)

    def at(self, *names: str) -> str:
        """As Spark takes it."""
        return "/".join([self.url, *names])

    def make(self, name: str) -> None:
        """The directory, unless it is there."""
        with self._translated():
            self._files.mkdirs(self._path(name))

    def exists(self, name: str) -> bool:
        with self._translated():
            return bool(self._files.exists(self._path(name)))

    def names(self, name: str) -> list[str]:
        """What lies directly in a directory; nothing if there is none."""
        with self._translated():
            if not self._files.exists(self._path(name)):
                return []
            return sorted(each.getPath().getName() for each in self._files.listStatus(self._path(name)))

    def found(self, pattern: str) -> list[str]:
        """The names that fit; a `*` stands for anything without a slash."""
        with self._translated():
            statuses = self._files.globStatus(self._path(pattern)) or []
            return sorted(self._relative(each.getPath()) for each in statuses)

    def size(self, name: str) -> int:
        """Bytes of all files below; 0 if there are none."""
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
        """For nobody who looks before it is published."""
        with self._translated():
            stream = self._files.create(self._path(name), True)
            try:
                stream.write(bytearray(text.encode()))
            finally:
                stream.close()

    def publish(self, source: str, target: str) -> bool:
        """Give a finished directory its name in one step; False if there is one of that name, which stays as it is."""
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
        """First its name is taken away, in one step: whoever still works in it can publish nothing of it."""
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
    """Durably: a power cut leaves all of it or nothing."""
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
