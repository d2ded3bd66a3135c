"""A verb of the command line."""

from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from typing import NamedTuple


def no_more_arguments(parser: ArgumentParser) -> None:
    """Add no arguments: the command takes only --config, --set and --json, as every command does."""
    del parser


def told_again(arguments: Namespace) -> list[str]:
    """Return the arguments common to all commands, to pass them to another process."""
    return ["--config", str(arguments.config), *(said for each in arguments.overrides for said in ("--set", each))]


class Command(NamedTuple):
    """A command of the command line. `run` gets the parsed arguments: also `config` (a Path), `overrides` (texts) and `json`.

    It may raise what the command line turns into an exit code: a `ConfigurationError` (3) or a `TransientError` (4).
    """

    summary: str
    run: Callable[[Namespace], int]
    add_arguments: Callable[[ArgumentParser], None] = no_more_arguments
