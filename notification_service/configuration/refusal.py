"""The error that lists all problems of a configuration at once."""

from collections.abc import Sequence

from resequencer.errors import ConfigurationError


class ConfigurationRefused(ConfigurationError):
    """One or more problems, each with its own path; the text has a line for each."""

    def __init__(self, problems: Sequence[ConfigurationError]) -> None:
        assert problems
        super().__init__(problems[0].path, problems[0].problem)
        self.args = ("\n".join(str(each) for each in problems),)
        self.problems = tuple(problems)
