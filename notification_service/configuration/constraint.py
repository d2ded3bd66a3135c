"""A rule that holds between keys, as data."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from resequencer.errors import ConfigurationError

Values = Mapping[str, Any]


class Constraint(msgspec.Struct, frozen=True):
    """The first of `keys` is the one that a refusal names; `problem` says why and what to do."""

    keys: tuple[str, ...]
    holds: Callable[[Values], bool]
    problem: str


class ConfigurationRefused(ConfigurationError):
    """One or more problems, each with its own path; the text has a line for each."""

    def __init__(self, problems: Sequence[ConfigurationError]) -> None:
        assert problems
        super().__init__(problems[0].path, problems[0].problem)
        self.args = ("\n".join(str(each) for each in problems),)
        self.problems = tuple(problems)
