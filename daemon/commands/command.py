"""A verb of the command line."""

from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from typing import NamedTuple


def no_more_arguments(parser: ArgumentParser) -> None:
    """For a verb that takes only what every verb takes: --config, --set, --json."""
    del parser


def told_again(arguments: Namespace) -> list[str]:
    """The arguments that every verb takes, for another process."""
    return ["--config", str(arguments.config), *(said for each in arguments.overrides for said in ("--set", each))]


class Command(NamedTuple):
    """`run` gets the parsed arguments, `config` (a Path), `overrides` (a list of texts) and `json` among them.

    It may raise what the command line turns into an exit code: a `ConfigurationError` (3) or a `TransientError` (4).
    """

    summary: str
    run: Callable[[Namespace], int]
    add_arguments: Callable[[ArgumentParser], None] = no_more_arguments
