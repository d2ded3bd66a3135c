"""A command of the command line: what it does in a line, its function and its arguments, imported when they are used."""

import sys
from argparse import SUPPRESS, ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Callable
from pathlib import Path
from pkgutil import resolve_name
from typing import NamedTuple

import msgspec

from notification_service.configuration.configuration import Configuration, load
from notification_service.configuration.resolution import add_overrides
from notification_service.supervision.stop_signal import Lifeline, StopSignal
from resequencer.clock import Instant, instant_of
from resequencer.printable import printable
from resequencer.record import Partition


def repeated_arguments(arguments: Namespace) -> list[str]:
    """Return the arguments common to all commands, to pass them to another process."""
    return ["--config", str(arguments.config), *(text for each in arguments.overrides for text in ("--set", each))]


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


class Subcommand(NamedTuple):
    """A subcommand; `add_arguments` adds its options to those of every command, `run` is its function if it has its own."""

    name: str
    summary: str
    add_arguments: Callable[[ArgumentParser], None] = lambda _: None
    run: Callable[..., int] | None = None


def add_subcommands(parser: ArgumentParser, *subcommands: Subcommand, is_required: bool) -> None:
    """Add the subcommands. The parsed name is `subcommand`, None if none was given; `run_subcommand` is its function."""
    names = " | ".join(subcommand.name for subcommand in subcommands)
    parsers = parser.add_subparsers(dest="subcommand", metavar=names, required=is_required)
    for subcommand in subcommands:
        each = parsers.add_parser(subcommand.name, help=subcommand.summary, description=subcommand.summary, allow_abbrev=False)
        each.add_argument("--config", type=Path, default=SUPPRESS, metavar="FILE", help=SUPPRESS)
        add_overrides(each, "more_overrides", help=SUPPRESS)
        each.add_argument("--json", action="store_true", default=SUPPRESS, help="print JSON")
        each.set_defaults(run_subcommand=subcommand.run)
        subcommand.add_arguments(each)


def instant(text: str) -> Instant:
    """Read an instant of the command line."""
    try:
        return instant_of(text)
    except ValueError as error:
        raise ArgumentTypeError("expected an instant (UTC if it names no zone), such as 2026-03-28T23:33") from error


def read_partition(text: str) -> Partition:
    """Read a partition of the command line."""
    found = Partition.find(text)
    if found is None:
        raise ArgumentTypeError(f"expected a topic and a number, such as TOPIC-0, not {text!r}")
    return found


def stop_signal(arguments: Namespace) -> StopSignal:
    """Return the installed request to stop: a signal, or the end of the supervisor that gave its `--lifeline`."""
    stop = StopSignal(None if arguments.lifeline is None else Lifeline(arguments.lifeline))
    stop.install()
    return stop


def say(text: str) -> None:
    """Write a line for people to the standard error."""
    sys.stderr.write(printable(f"resequencer: {text}") + "\n")


def write_row(arguments: Namespace, row: object, line: str) -> None:
    """Write a row to the standard output: as JSON if that was asked for, else the line."""
    sys.stdout.write((msgspec.json.encode(row).decode() if arguments.json else printable(line)) + "\n")


def load_for(arguments: Namespace) -> Configuration:
    """Load the configuration with the settings before the subcommand, then those behind it."""
    return load(arguments.config, [*arguments.overrides, *getattr(arguments, "more_overrides", ())])
