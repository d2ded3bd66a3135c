"""CSV files as sources: each row knows its line, and no line damages another, whatever the content."""

from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from notification_service.jobs.errors import JobRefused
from notification_service.jobs.lookups.csv_source import LONGEST_LINE_BYTES, read_csv
from notification_service.jobs.lookups.reading import read_sources
from notification_service.jobs.lookups.specs import SPECS
from notification_service.jobs.spark.job_settings import SourceSettings
from notification_service.lookups.shapes import CUSTOMERS

WANTED, REQUIRED = ("party", "channel", "since"), ("party",)


def read(spark: SparkSession, path: Path, **described: Any) -> list[tuple[int, str | None, tuple[str | None, ...]]]:
    """Return the line, the flaw and the cells of each row."""
    rows, counted = read_csv(spark, SourceSettings("csv", str(path), **described), WANTED, REQUIRED)
    found = rows.orderBy("place", "line").collect()
    assert len(found) == counted
    return [(row.line, row.flaw, (row.party, row.channel, row.since)) for row in found]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "customers.csv"


def test_a_row_is_a_line_and_a_malformed_one_is_reported_with_its_number(spark: SparkSession, file: Path) -> None:
    lines = [
        b"\xef\xbb\xbf party ,channel,other",
        b"P1, email ,x",
        b'"P2, and ""quoted""",push,',
        b"",
        b"P3,email",
        b"P4,email,x,y",
        b"P\xff,email,x",
        b'"P5,email,x',
        "Müller,,".encode(),
        b"P6," + b"x" * LONGEST_LINE_BYTES + b",",
        b"   ",
        b"P7,email,x",
    ]
    file.write_bytes(b"\r\n".join(lines))
    found = read(spark, file)
    assert [(line, cells) for line, flaw, cells in found if flaw is None] == [
        (2, ("P1", "email", None)),
        (3, ('P2, and "quoted"', "push", None)),
        (9, ("Müller", None, None)),
        (12, ("P7", "email", None)),
    ]
    assert {line: flaw for line, flaw, _ in found if flaw is not None} == {
        5: "not 3 cells; quote a cell that holds the delimiter",
        6: "not 3 cells; quote a cell that holds the delimiter",
        7: "not UTF-8",
        8: "a quoted cell does not end on its line",
        10: f"a line of {LONGEST_LINE_BYTES + 4} bytes",
    }


def test_a_line_of_ten_megabytes_is_refused_and_spoils_no_other(
    spark: SparkSession, file: Path, request: pytest.FixtureRequest
) -> None:
    """The line extends over several blocks, and one of them reads it."""
    block = "spark.sql.files.maxPartitionBytes"
    request.addfinalizer(partial(spark.conf.set, block, spark.conf.get(block)))
    spark.conf.set(block, 4 << 20)
    file.write_bytes(b"party,channel,since\nP1,email,\n" + b"P2," + b"x" * 10_000_000 + b",\nP3,push,\n")
    assert [(line, flaw) for line, flaw, _ in read(spark, file)] == [(2, None), (3, "a line of 10000004 bytes"), (4, None)]


def test_lines_are_numbered_through_files_of_many_blocks_and_several_sources(spark: SparkSession, tmp_path: Path) -> None:
    sources = []
    for name in ("one", "two"):
        directory = tmp_path / name
        directory.mkdir()
        for part in ("a", "b"):
            rows = "".join(f"{name}-{part}-{line},{'x' * (line % 40)}\n" for line in range(2, 3_001))
            (directory / f"{part}.csv").write_text(f"initiating_party,channel\n{rows}")
        sources.append(SourceSettings("csv", str(directory)))
    read = read_sources(spark, sources, SPECS[CUSTOMERS], tmp_path)
    rows = read.rows.select("source", "place", "line", "initiating_party").collect()
    assert read.counted == (2 * 2_999, 2 * 2_999)
    assert len(rows) == 4 * 2_999
    for source, place, line, party in rows:
        part = Path(place).stem
        assert party == f"{('one', 'two')[source]}-{part}-{line}"


def test_columns_may_be_called_otherwise_and_delimited_otherwise(spark: SparkSession, file: Path) -> None:
    file.write_text("Kunde;Kanal\nP1;email\n")
    columns = {"party": "Kunde", "channel": "Kanal"}
    assert read(spark, file, delimiter=";", columns=columns) == [(2, None, ("P1", "email", None))]


def test_a_column_may_be_said_not_to_be_there(spark: SparkSession, file: Path) -> None:
    file.write_text("party,channels\nP1,email\n")
    assert read(spark, file, columns={"channel": ""}) == [(2, None, ("P1", None, None))]


@pytest.mark.parametrize(
    ("content", "columns", "text"),
    [
        (b"", {}, "is empty; its first line must name the columns"),
        (b"\n\n", {}, "is empty"),
        (
            b"partei,channel\nP1,x\n",
            {},
            "the column 'party' is missing; the source has 'partei', 'channel'; did you mean 'partei'?",
        ),
        (b"party,channel,party\nP1,x,P2\n", {}, "the column 'party' occurs twice"),
        (b"Party,channel\nP1,x\n", {}, "the column 'party' is missing; the source has 'Party', 'channel'; did you mean 'Party'?"),
        (
            b"party,channels\nP1,x\n",
            {},
            "'channel' is missing, but 'channels' has almost the same name; write channel = 'channels'",
        ),
        (b"party,CHANNEL\nP1,x\n", {}, "'channel' is missing, but 'CHANNEL' has almost the same name"),
        (b"party\nP1\n", {"channel": "Kanal"}, "the column 'Kanal' is missing"),
        (b"party\nP1\n", {"chanel": "x"}, "columns renames 'chanel', which is not one of party, channel, since"),
        ("party,channel\nP1,x\n".encode("utf-16"), {}, "the header is not UTF-8"),
    ],
    ids=["empty", "blank", "missing", "doubled", "required-case", "near", "case", "renamed", "mistyped", "utf-16"],
)
def test_a_file_with_a_wrong_header_is_refused_whole(
    spark: SparkSession, file: Path, content: bytes, columns: dict[str, str], text: str
) -> None:
    file.write_bytes(content)
    with pytest.raises(JobRefused) as refused:
        read(spark, file, columns=columns)
    assert text in str(refused.value)
    assert "customers.csv" in str(refused.value)


def test_files_with_different_headers_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("party,channel\nP1,x\n")
    (tmp_path / "b.csv").write_text("channel,party\nx,P1\n")
    with pytest.raises(JobRefused, match="different headers"):
        read(spark, tmp_path)


def test_a_file_that_is_not_there_is_refused_by_name(spark: SparkSession, tmp_path: Path) -> None:
    source = SourceSettings("csv", str(tmp_path / "nowhere.csv"))
    with pytest.raises(JobRefused, match=r"nowhere.csv: cannot be read"):
        read_sources(spark, [source], SPECS[CUSTOMERS], tmp_path)
