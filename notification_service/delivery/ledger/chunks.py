"""Parts of what a statement names: databases bound the parameters of one (PostgreSQL 65 535, SQLite 32 766)."""

from collections.abc import Iterator, Sequence
from typing import TypeVar

_Each = TypeVar("_Each")
MOST = 5_000


def chunks(values: Sequence[_Each]) -> Iterator[Sequence[_Each]]:
    """Yield the values in parts of at most `MOST`; none for no values."""
    for first in range(0, len(values), MOST):
        yield values[first : first + MOST]
