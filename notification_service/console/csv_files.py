"""Lists as CSV files (RFC 4180, UTF-8), for a spreadsheet: streamed, bounded, and without formulas."""

import csv
from collections.abc import Iterable, Iterator, Sequence
from io import StringIO
from itertools import chain, islice

from starlette.responses import StreamingResponse

from resequencer.clock import Instant, instant_text

MAX_ROWS = 100_000
_AT_ONCE = 500
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")
"""How a text begins that a spreadsheet would calculate (OWASP, CSV injection); full-width forms count, too."""
_FULL_WIDTH = str.maketrans("\uff1d\uff0b\uff0d\uff20", "=+-@")


def csv_answer(name: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> StreamingResponse:
    """Answer with a file of this name. Of more than `MAX_ROWS` rows the first ones are in it, and a last line says so.

    The first rows are read before the answer begins: what cannot be read is an answer with a problem, and no broken file.
    """
    disposition, remaining = f'attachment; filename="{name}.csv"', iter(rows)
    read = chain(list(islice(remaining, _AT_ONCE)), remaining)
    return StreamingResponse(
        _lines(columns, read), media_type="text/csv; charset=utf-8", headers={"Content-Disposition": disposition}
    )


def time_cell(at: Instant | None) -> str:
    return "" if at is None else instant_text(at)


def _lines(columns: Sequence[str], rows: Iterator[Sequence[object]]) -> Iterator[str]:
    yield _text([columns])
    remaining = MAX_ROWS
    while remaining > 0 and (found := list(islice(rows, min(_AT_ONCE, remaining)))):
        remaining -= len(found)
        yield _text(found)
    if remaining == 0 and next(rows, None) is not None:
        yield _text([[f"only the first {MAX_ROWS:,} rows are in this file: filter the list"]])


def _text(rows: Iterable[Sequence[object]]) -> str:
    text = StringIO(newline="")
    csv.writer(text).writerows([_cell(each) for each in row] for row in rows)
    return text.getvalue()


def _cell(value: object) -> object:
    """Return the value so that no spreadsheet takes it for a formula: a text that begins like one gets an apostrophe."""
    if value is None:
        return ""
    is_formula = isinstance(value, str) and value.lstrip().translate(_FULL_WIDTH).startswith(_FORMULA)
    return f"'{value}" if is_formula or (isinstance(value, str) and value.startswith(_FORMULA)) else value
