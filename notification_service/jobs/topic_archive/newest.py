"""Reads the newest manifest of an archive on a local path, without Spark."""

from pathlib import Path

from notification_service.jobs.topic_archive.errors import ArchiveUnavailable
from notification_service.jobs.topic_archive.manifest import NAME, DirectoryManifest, decode
from notification_service.jobs.topic_archive.span import Span, find_span, visible

RECORDS = "batches"


def find_spans(location: Path) -> list[Span]:
    """Return the spans that count, in order.

    Raises:
        ArchiveRefused: A batch is missing.
    """
    found = (find_span(manifest.parent.name) for manifest in (location / RECORDS).glob(f"batch=*/{NAME}"))
    return visible(span for span in found if span is not None)


def read_manifest(location: Path, span: Span) -> DirectoryManifest:
    """Return the manifest of a directory. Raises ArchiveRefused for a damaged one, and OSError."""
    file = location / RECORDS / span.name / NAME
    return decode(file.read_text(encoding="utf-8"), str(file))


def find_newest(location: Path) -> DirectoryManifest | None:
    """Return the manifest of the newest batch; None if nothing was archived.

    Raises:
        ArchiveRefused: A batch is missing, or the manifest is damaged.
        ArchiveUnavailable: A file cannot be read now.
    """
    try:
        spans = find_spans(location)
        return read_manifest(location, spans[-1]) if spans else None
    except OSError as error:
        raise ArchiveUnavailable(f"{location}: {error}") from error
