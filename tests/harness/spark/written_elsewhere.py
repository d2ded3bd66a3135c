"""Imitates a task that ran on a machine that does not share the directory."""

from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from pyspark.sql import DataFrameWriter


def write_elsewhere(writer: "DataFrameWriter", url: str, **options: Any) -> None:
    """Stands in for `DataFrameWriter.parquet`; one of the written files is missing here."""
    writer.format("parquet").save(url, **options)
    next(Path(urlsplit(url).path).rglob("*.parquet")).unlink()
