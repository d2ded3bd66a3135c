"""`resequencer check`: validates the configuration and prints the effective one."""

import json
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from importlib.metadata import packages_distributions

from notification_service.commands.check.preflight import Surroundings, look_around
from notification_service.configuration.configuration import Configuration, load
from notification_service.configuration.refusal import ConfigurationRefused
from notification_service.supervision.exit_code import ExitCode
from notification_service.wiring.composition import refuse_unusable
from resequencer.errors import ConfigurationError

_DISTRIBUTION = "resequencer"
_PACKAGES = ("resequencer", "guardian", "storage", "notification_service")


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--connect", action="store_true", help="also try the directories and servers of the configuration")


def check(arguments: Namespace) -> ExitCode:
    """Print the effective configuration, or with --json one object. A refusal is raised; with --json it is printed before."""
    try:
        _refuse_shared_packages()
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


def _refuse_shared_packages() -> None:
    """Refuse a package of ours that another distribution has, too: both write into one directory, and some files are theirs."""
    installed = packages_distributions()
    for name in _PACKAGES:
        others = sorted(set(installed.get(name, ())) - {_DISTRIBUTION})
        if others:
            problem = f"{', '.join(others)} installs a package of this name, too, and both overwrite each other's files"
            raise ConfigurationError(f"package {name}", f"{problem}; install the service into an environment of its own")


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
