"""A rule that holds between keys, as data."""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

Values = Mapping[str, Any]


class Constraint(msgspec.Struct, frozen=True):
    """The first of `keys` is the one that a refusal names; `problem` says why and what to do."""

    keys: tuple[str, ...]
    holds: Callable[[Values], bool]
    problem: str
