from argparse import ArgumentParser
from pathlib import Path

import pytest

from notification_service.commands.verify import add_arguments as add_verify_arguments
from notification_service.simulator.arguments import Judge, add_simulate_arguments, plan_from
from notification_service.simulator.generate.plan import SAMPLES, Bursts, Flows, Keys, Numbering, Plan, Schema

LIMIT = 5 * 1024 * 1024


def plan(*arguments: str, drawn_seed: int = 99, deadline_ms: int = 21_000) -> Plan:
    parser = ArgumentParser()
    add_simulate_arguments(parser)
    return plan_from(parser.parse_args(arguments), drawn_seed=drawn_seed, judge=Judge(deadline_ms, LIMIT))


def test_without_arguments_our_samples_are_simulated_under_the_drawn_seed():
    assert plan() == Plan(units=1_000, seed=99, late_after_ms=27_250, max_value_bytes=LIMIT)
    assert plan().pain001 == SAMPLES


def test_late_envelopes_come_after_the_deadline_unless_it_is_set_otherwise():
    assert plan(deadline_ms=2_000).late_after_ms > 2_000
    assert plan("--late-after", "1.5").late_after_ms == 1_500


def test_every_argument_arrives_in_the_plan():
    given = "--units 5 --seed 3 --flows 2 --numbering separate --schema 1 --window 9 --duplicates 2% --losses 0.5"
    rest = "--late 0.25 --garbage 0.1 --late-after 4s --partitions 2 --pain001 a.xml b.xml"
    new = "--keys zipf --exponent 1.5 --conflicts 0.1% --rate 30000/min --bursts 500/30"
    assert plan(*given.split(), *rest.split(), *new.split()) == Plan(
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
        keys=Keys.ZIPF,
        exponent=1.5,
        conflicts=0.001,
        max_value_bytes=LIMIT,
        rate=500.0,
        bursts=Bursts(500, 30_000),
    )
    assert plan("--backlog").is_backlog


@pytest.mark.parametrize(("text", "per_second"), [("500/s", 500), ("30000/min", 500), ("0.5/s", 0.5), ("3600/h", 1)])
def test_a_rate_is_of_lines_in_any_unit_of_time(text: str, per_second: float):
    assert plan("--rate", text, "--window", "0").rate == per_second


@pytest.mark.parametrize("other", ["--rate 500/s", "--bursts 5/5", "--late-after 3"])
def test_a_backlog_has_no_time(other: str):
    with pytest.raises(ValueError, match="--backlog"):
        plan("--backlog", *other.split())


def test_a_window_that_lasts_longer_than_half_the_deadline_is_refused_with_one_that_will_do():
    with pytest.raises(ValueError, match="use --window 105"):
        plan("--rate", "10/s", deadline_ms=21_000)
    assert plan("--rate", "10/s", "--window", "105", deadline_ms=21_000).window == 105


@pytest.mark.parametrize(
    "arguments",
    [
        "--units 0", "--units -1", "--units many", "--units 1.5", "--units ²", "--seed -1", "--window -1", "--partitions 0",
        "--duplicates 1.5", "--losses -0.1", "--late 101%", "--garbage nan", "--garbage %", "--late-after -1",
        "--late-after inf", "--late-after soon", "--flows 3", "--numbering none", "--schema 3", "--pain001",
        "--rate 500", "--rate 0/s", "--rate nan/s", "--rate 5/d", "--rate /s", "--rate -5/s", "--rate 1e99/s",
        "--bursts 5", "--bursts 0/5", "--bursts 5/0", "--bursts /5", "--bursts 5/", "--bursts 5/nan",
        "--conflicts 2", "--keys hot", "--exponent 0", "--exponent nan", "--exponent 9",
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
    alone = {"strategy": None, "sink": None, "expected": None, "follow": False, "interval": 2_000, "give_up_after": None}
    assert vars(parser.parse_args([])) == alone
    follow = ["--follow", "--interval", "0.5", "--give-up-after", "9"]
    given = parser.parse_args(["--strategy", "STRICT_SEQUENCE", "--expected", "there", *follow])
    stated = {"strategy": "STRICT_SEQUENCE", "expected": Path("there"), "follow": True, "interval": 500, "give_up_after": 9_000}
    assert vars(given) == {**alone, **stated}
