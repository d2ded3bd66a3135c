"""`resequencer verify`: compares the output with what the simulator expected, by the configured strategy."""

import sys
from argparse import Namespace
from pathlib import Path

from daemon.configuration import Configuration, load
from daemon.exit_code import ExitCode
from daemon.simulate import expected_file
from simulator.order_rules import Rules
from simulator.verdict import Verdict, render_json, render_text
from simulator.verification import verify_files


def verify(arguments: Namespace) -> ExitCode:
    """Exit code 0 only if every promise was held."""
    configuration = load(arguments.config, arguments.overrides)
    verdict = verify_output(configuration, expected_file(arguments.expected, configuration), arguments.strategy)
    sys.stdout.write((render_json(verdict) if arguments.json else render_text(verdict)) + "\n")
    return ExitCode.DONE if verdict.is_good else ExitCode.NOT_SO


def verify_output(configuration: Configuration, expected: Path, strategy: str | None = None) -> Verdict:
    """What the output directory holds against these expectations."""
    resequencer, output = configuration.resequencer, configuration.notification.output_directory
    rules = Rules(
        strategy or resequencer.strategy,
        resequencer.custom_data_keys,
        resequencer.pds_data_keys,
        configuration.notification.target_type,
    )
    return verify_files(rules, expected, output / "notifications.jsonl", output / "dead-letters.jsonl")
