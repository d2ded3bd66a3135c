"""The command line: `resequencer COMMAND [--config FILE] [--set key=value …] [--json]`."""

import os
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from pathlib import Path

from notification_service.commands.command import Command
from notification_service.configuration.configuration import DEFAULT_FILE
from notification_service.configuration.resolution import add_overrides, one_by_one
from notification_service.supervision.exit_code import ExitCode, NotJudged
from resequencer.errors import ConfigurationError, ResequencerError, TransientError
from resequencer.printable import without_secrets

COMMANDS: dict[str, Command] = {
    "archive": Command("move processed input into the archive", "notification_service.commands.archive:archive"),
    "archive-topics": Command(
        "copy the topics to Parquet, each record once",
        "notification_service.commands.archive_topics:archive_topics",
        "notification_service.commands.archive_topics:add_arguments",
    ),
    "audit": Command(
        "check from the records that the output is complete, unique and in order",
        "notification_service.commands.audit:audit",
        "notification_service.commands.audit:add_arguments",
    ),
    "bridge": Command(
        "carry messages from a broker of MQTT or AMQP to the input; the service does so by itself",
        "notification_service.commands.run:bridge",
        "notification_service.commands.run:add_bridge_arguments",
    ),
    "check": Command(
        "validate the configuration and print the effective one",
        "notification_service.commands.check:check",
        "notification_service.commands.check:add_arguments",
    ),
    "console": Command(
        "serve pages, API and metrics for operators by HTTP",
        "notification_service.commands.console:console",
        "notification_service.commands.console:add_arguments",
    ),
    "dead-letters": Command(
        "list, show, requeue, edit or discard dead letters",
        "notification_service.commands.dead_letters:dead_letters",
        "notification_service.commands.dead_letters:add_arguments",
    ),
    "delivery": Command(
        "deliver notifications to the receivers, and show or change its jobs",
        "notification_service.commands.delivery:delivery",
        "notification_service.commands.delivery:add_arguments",
    ),
    "demo": Command(
        "run the main job on simulated payments, start to end",
        "notification_service.commands.demo:demo",
        "notification_service.commands.demo:add_arguments",
    ),
    "find": Command(
        "search for a unit, a message, a notification, a dead letter or a payment by its id",
        "notification_service.commands.units:find_anything",
        "notification_service.commands.units:add_find_arguments",
    ),
    "groups": Command(
        "list, show or close groups: the payments of one message",
        "notification_service.commands.groups:groups",
        "notification_service.commands.groups:add_arguments",
    ),
    "run": Command(
        "run the service in the foreground until SIGTERM",
        "notification_service.commands.run:run",
        "notification_service.commands.run:add_run_arguments",
    ),
    "supervise": Command(
        "run the service with its supervisor in the foreground; start does so in the background",
        "notification_service.commands.run:supervise",
        "notification_service.commands.run:add_supervise_arguments",
    ),
    "start": Command(
        "start the service as a daemon and wait until it is ready",
        "notification_service.commands.run:start",
        "notification_service.worker.scheduled_archive:add_archive_flag",
    ),
    "stop": Command("stop the daemon after it has drained", "notification_service.commands.run:stop"),
    "restart": Command(
        "stop, then start; --rolling: one worker after another",
        "notification_service.commands.run:restart",
        "notification_service.commands.run:add_restart_arguments",
    ),
    "lookups": Command(
        "build, list, show or roll back the lookups of the handlers",
        "notification_service.commands.lookups:lookups",
        "notification_service.commands.lookups:add_arguments",
    ),
    "logs": Command(
        "print the last lines of the daemon's log",
        "notification_service.commands.status:show_logs",
        "notification_service.commands.status:add_logs_arguments",
    ),
    "status": Command(
        "show whether the service is ready, and what waits",
        "notification_service.commands.status:status",
        "notification_service.commands.status:add_status_arguments",
    ),
    "simulate": Command(
        "write envelopes of simulated payments",
        "notification_service.commands.simulate:simulate",
        "notification_service.simulator.arguments:add_simulate_arguments",
    ),
    "orders": Command(
        "list the orders of operators, with their outcomes",
        "notification_service.commands.orders:orders",
        "notification_service.commands.orders:add_orders_arguments",
    ),
    "partitions": Command(
        "list, pause or resume partitions",
        "notification_service.commands.orders:partitions",
        "notification_service.commands.orders:add_partitions_arguments",
    ),
    "region": Command(
        "show the regions of the workers (source, units and sinks), or reset one that has failed",
        "notification_service.commands.region:region",
        "notification_service.commands.region:add_region_arguments",
    ),
    "sink": Command(
        "show or change server, qos and topics of the sink mqtt while the service runs",
        "notification_service.commands.region:sink",
        "notification_service.commands.region:add_sink_arguments",
    ),
    "units": Command(
        "list the units of work that wait, show everything about one, or give an order for it",
        "notification_service.commands.units:units",
        "notification_service.commands.units:add_arguments",
    ),
    "verify": Command(
        "compare the output with what the simulator expected",
        "notification_service.commands.verify:verify",
        "notification_service.commands.verify:add_arguments",
    ),
}


FAILURES = {
    ConfigurationError: ExitCode.CONFIGURATION_REFUSED,
    TransientError: ExitCode.OUT_OF_REACH,
    NotJudged: ExitCode.NOT_JUDGED,
}
"""The exit code of each family of errors. Any other error gives FAILED."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code. An expected error is one line per problem on stderr, never a traceback."""
    arguments = parse(sys.argv[1:] if argv is None else argv)
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
    for line in without_secrets(str(error)).splitlines():
        sys.stderr.write(f"resequencer: {line}\n")
    return next((code for family, code in FAILURES.items() if isinstance(error, family)), ExitCode.FAILED)


def parse(argv: Sequence[str]) -> Namespace:
    """Parse the command line. Only the modules of the command that it names are imported: all of them take 0.1 s."""
    parser = ArgumentParser(
        "resequencer", description="Puts the events of a payment back in order and sends its status notifications."
    )
    parser.add_argument("--version", action="version", version=_find_version() if "--version" in argv else "")
    for argument in argv:
        if argument != (readable := argument.encode(errors="backslashreplace").decode()):
            parser.error(f"the argument {readable} is not UTF-8: give it in UTF-8")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, command in COMMANDS.items():
        each = commands.add_parser(name, help=command.summary, description=command.summary, allow_abbrev=False)
        if name in argv:
            each.add_argument("--config", type=Path, default=DEFAULT_FILE, metavar="FILE", help=f"default: {DEFAULT_FILE}")
            add_overrides(each, help="set a key, overriding the file; the value is HOCON")
            each.add_argument("--json", action="store_true", help="print JSON")
            command.add_arguments(each)
    return parser.parse_args([*one_by_one(argv)])


def _find_version() -> str:
    from importlib import metadata  # Takes as long as all other modules of a command.

    return f"resequencer {metadata.version('resequencer')}"
