"""`resequencer check`: validates the configuration and prints the effective one."""

import json
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence

from daemon.commands.check.preflight import Surroundings, look_around
from daemon.composition import refuse_unusable
from daemon.configuration.configuration import Configuration, load
from daemon.configuration.refusal import ConfigurationRefused
from daemon.exit_code import ExitCode
from domain.errors import ConfigurationError


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--connect", action="store_true", help="also try the directories and servers of the configuration")


def check(arguments: Namespace) -> ExitCode:
    """Print the effective configuration, or with --json one object. A refusal is raised; with --json it is printed before."""
    try:
        configuration = load(arguments.config, arguments.overrides)
        refuse_unusable(configuration)
    except ConfigurationError as error:
        if arguments.json:
            _print_json({"valid": False, "problems": _problems(error)})
        raise
    found = look_around(configuration) if arguments.connect else Surroundings((), (), ())
    unreachable = (*found.refused, *found.unreachable)
    if arguments.json:
        _print_json(_report(configuration, unreachable, found.remarks))
    else:
        _print_text(configuration, found.remarks)
    for problem in unreachable:
        sys.stderr.write(f"resequencer: {problem}\n")
    return ExitCode.OUT_OF_REACH if unreachable else ExitCode.DONE


def _problems(error: ConfigurationError) -> list[dict[str, str]]:
    each = error.problems if isinstance(error, ConfigurationRefused) else (error,)
    return [{"path": problem.path, "problem": problem.problem} for problem in each]


def _report(configuration: Configuration, unreachable: Sequence[str], remarks: Sequence[str]) -> dict[str, object]:
    return {
        "valid": True,
        "file": str(configuration.file),
        "warnings": [*configuration.warnings, *remarks],
        "unreachable": [*unreachable],
        "keys": {each.path: {"value": each.value, "layer": each.layer} for each in configuration.effective},
    }


def _print_text(configuration: Configuration, found: Sequence[str]) -> None:
    lines = [f"# {configuration.file} is valid. Each value that is not a default shows where it was set."]
    lines.extend(map(str, configuration.effective))
    remarks = [*configuration.warnings, *found]
    lines.extend(f"# note: {remark}" for remark in remarks)
    sys.stdout.write("\n".join(lines) + "\n")


def _print_json(value: object) -> None:
    sys.stdout.write(json.dumps(value, ensure_ascii=False, indent=2) + "\n")
