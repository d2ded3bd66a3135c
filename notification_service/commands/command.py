"""A command of the command line: what it does in a line, its function and its arguments, imported when they are used."""

from argparse import ArgumentParser, Namespace
from pkgutil import resolve_name
from typing import NamedTuple


def told_again(arguments: Namespace) -> list[str]:
    """Return the arguments common to all commands, to pass them to another process."""
    return ["--config", str(arguments.config), *(said for each in arguments.overrides for said in ("--set", each))]


class Command(NamedTuple):
    """A command of the command line. Its functions are named as `module:name`, and imported when the command is used.

    `function` gets the parsed arguments: also `config` (a Path), `overrides` (texts) and `json`. It returns the exit code. It may
    raise what the command line turns into one: a `ConfigurationError` (3) or a `TransientError` (4). `arguments_of` gets the
    parser, and adds the command's own arguments to it.
    """

    summary: str
    function: str
    arguments_of: str | None = None

    def run(self, arguments: Namespace) -> int:
        code: int = resolve_name(self.function)(arguments)
        return code

    def add_arguments(self, parser: ArgumentParser) -> None:
        if self.arguments_of is not None:
            resolve_name(self.arguments_of)(parser)
