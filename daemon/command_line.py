"""The command line: `resequencer VERB [--config FILE] [--set key=value …] [--json]`."""

import os
import sys
from argparse import ArgumentParser
from collections.abc import Sequence
from pathlib import Path

from daemon.commands import (
    archive,
    archive_topics,
    audit,
    check,
    console,
    demo,
    logs,
    lookups,
    run,
    simulate,
    start,
    status,
    supervise,
    units,
    verify,
)
from daemon.commands.command import Command
from daemon.commands.dead_letters import command as dead_letters
from daemon.configuration.configuration import DEFAULT_FILE
from daemon.configuration.overrides import add_overrides, one_by_one
from daemon.exit_code import ExitCode
from daemon.worker.scheduled_archive import add_archive_flag
from domain.errors import ConfigurationError, ResequencerError, TransientError
from domain.printable import without_password
from simulator.arguments import add_simulate_arguments

COMMANDS: dict[str, Command] = {
    "archive": Command("move processed input into the archive", archive.archive),
    "archive-topics": Command(
        "copy the topics to Parquet, each record once", archive_topics.archive_topics, archive_topics.add_arguments
    ),
    "audit": Command("check from the records that the output is complete, unique and in order", audit.audit, audit.add_arguments),
    "check": Command("validate the configuration and print the effective one", check.check, check.add_arguments),
    "console": Command("serve what operators see: pages, API and metrics by HTTP", console.console, console.add_arguments),
    "dead-letters": Command(
        "list, show, requeue, edit or discard dead letters", dead_letters.dead_letters, dead_letters.add_arguments
    ),
    "demo": Command("run the main job on simulated payments, start to end", demo.demo, demo.add_arguments),
    "run": Command("run the service in the foreground until SIGTERM", run.run, run.add_arguments),
    "supervise": Command(
        "run the service with its supervisor in the foreground; start does so in the background",
        supervise.supervise,
        supervise.add_arguments,
    ),
    "start": Command("start the service as a daemon and wait until it is ready", start.start, add_archive_flag),
    "stop": Command("stop the daemon after it has drained", start.stop),
    "restart": Command("stop, then start", start.restart, add_archive_flag),
    "lookups": Command("build, list, show or roll back the lookups of the handlers", lookups.lookups, lookups.add_arguments),
    "logs": Command("print the last lines of the daemon's log", logs.show_logs, logs.add_arguments),
    "status": Command("show whether the service is ready, and what waits", status.status),
    "simulate": Command("write envelopes of simulated payments", simulate.simulate, add_simulate_arguments),
    "units": Command("list what waits, or show everything about one unit of work", units.units, units.add_arguments),
    "verify": Command("compare the output with what the simulator expected", verify.verify, verify.add_arguments),
}


FAILURES = {
    ConfigurationError: ExitCode.CONFIGURATION_REFUSED,
    TransientError: ExitCode.OUT_OF_REACH,
    audit.NotJudged: ExitCode.NOT_JUDGED,
}
"""The exit code of each family of errors. Any other error gives NOT_SO."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code. An expected error is one line per problem on stderr, never a traceback."""
    arguments = _parser().parse_args([*one_by_one(sys.argv[1:] if argv is None else argv)])
    try:
        code = COMMANDS[arguments.command].run(arguments)
        sys.stdout.flush()
    except ResequencerError as error:
        return _failed(error)
    except KeyboardInterrupt:
        return ExitCode.INTERRUPTED
    except BrokenPipeError:
        # The reader of the output (`| head`) has enough; the interpreter's own flush must not fail on it again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return ExitCode.DONE
    return code


def _failed(error: ResequencerError) -> int:
    sys.stdout.flush()
    for line in without_password(str(error)).splitlines():
        sys.stderr.write(f"resequencer: {line}\n")
    return next((code for family, code in FAILURES.items() if isinstance(error, family)), ExitCode.NOT_SO)


def _parser() -> ArgumentParser:
    parser = ArgumentParser(
        "resequencer", description="Puts the events of a payment back in order and sends its status notifications."
    )
    commands = parser.add_subparsers(dest="command", metavar="VERB", required=True)
    for name, command in COMMANDS.items():
        each = commands.add_parser(name, help=command.summary, description=command.summary, allow_abbrev=False)
        each.add_argument("--config", type=Path, default=DEFAULT_FILE, metavar="FILE", help=f"default: {DEFAULT_FILE}")
        add_overrides(each, help="set a key, overriding the file; the value is HOCON")
        each.add_argument("--json", action="store_true", help="print JSON")
        command.add_arguments(each)
    return parser
