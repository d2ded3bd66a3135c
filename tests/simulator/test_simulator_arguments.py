from argparse import ArgumentParser
from pathlib import Path

import pytest

from simulator.arguments import add_simulate_arguments, add_verify_arguments, plan_from
from simulator.plan import SAMPLES, Flows, Numbering, Plan, Schema


def plan(*arguments: str, drawn_seed: int = 99, deadline_ms: int = 21_000) -> Plan:
    parser = ArgumentParser()
    add_simulate_arguments(parser)
    return plan_from(parser.parse_args(arguments), drawn_seed=drawn_seed, deadline_ms=deadline_ms)


def test_without_arguments_our_samples_are_simulated_under_the_drawn_seed():
    assert plan() == Plan(units=1_000, seed=99, late_after_ms=27_250)
    assert plan().pain001 == SAMPLES


def test_late_envelopes_come_after_the_deadline_unless_told_otherwise():
    assert plan(deadline_ms=2_000).late_after_ms > 2_000
    assert plan("--late-after", "1.5").late_after_ms == 1_500


def test_every_argument_arrives_in_the_plan():
    given = "--units 5 --seed 3 --flows 2 --numbering separate --schema 1 --window 9 --duplicates 2% --losses 0.5"
    rest = "--late 0.25 --garbage 0.1 --late-after 4s --partitions 2 --pain001 a.xml b.xml"
    assert plan(*given.split(), *rest.split()) == Plan(
        units=5,
        seed=3,
        flows=Flows.TWO,
        numbering=Numbering.SEPARATE,
        schema=Schema.ONE,
        window=9,
        duplicates=0.02,
        losses=0.5,
        late=0.25,
        late_after_ms=4_000,
        garbage=0.1,
        partitions=2,
        pain001=(Path("a.xml"), Path("b.xml")),
    )


@pytest.mark.parametrize(
    "arguments",
    [
        "--units 0", "--units -1", "--units many", "--units 1.5", "--units ²", "--seed -1", "--window -1", "--partitions 0",
        "--duplicates 1.5", "--losses -0.1", "--late 101%", "--garbage nan", "--garbage %", "--late-after -1",
        "--late-after inf", "--late-after soon", "--flows 3", "--numbering none", "--schema 3", "--pain001",
    ],
)  # fmt: skip
def test_what_no_simulation_could_do_is_a_usage_error(arguments: str, capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as ended:
        plan(*arguments.split())
    assert ended.value.code == 2
    assert arguments.split()[0] in capsys.readouterr().err


def test_more_than_all_cannot_be_lost_or_late():
    with pytest.raises(ValueError, match="more than 1"):
        plan("--losses", "0.6", "--late", "0.6")


def test_verify_takes_a_strategy_and_the_expectations():
    parser = ArgumentParser()
    add_verify_arguments(parser)
    assert vars(parser.parse_args([])) == {"strategy": None, "expected": None}
    given = parser.parse_args(["--strategy", "STRICT_SEQUENCE", "--expected", "there.jsonl"])
    assert vars(given) == {"strategy": "STRICT_SEQUENCE", "expected": Path("there.jsonl")}
