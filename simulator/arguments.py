"""The arguments of `resequencer simulate` and `resequencer verify`."""

from argparse import ArgumentParser, ArgumentTypeError, Namespace
from pathlib import Path

from domain.clock import Instant
from simulator.plan import SAMPLES, Flows, Numbering, Plan, Schema

_DEFAULT = Plan(units=1_000, seed=0)


def add_simulate_arguments(parser: ArgumentParser) -> None:
    """Of what is simulated; where it is written to is the configuration's affair, but for `--expected`."""
    parser.add_argument("--units", type=_positive, default=_DEFAULT.units, help="payments (default: %(default)s)")
    parser.add_argument("--seed", type=_count, help="the same seed writes the same bytes (default: a new one, printed)")
    parser.add_argument("--flows", choices=[*Flows], type=Flows, default=_DEFAULT.flows, help="flows of a payment")
    parser.add_argument("--numbering", choices=[*Numbering], type=Numbering, default=_DEFAULT.numbering, help="of the events")
    parser.add_argument("--schema", choices=[*Schema], type=Schema, default=_DEFAULT.schema, help="version of the envelopes")
    parser.add_argument("--window", type=_count, default=_DEFAULT.window, help="places an envelope moves (default: %(default)s)")
    for name, what in (
        ("duplicates", "written twice"),
        ("losses", "never written"),
        ("late", "written after the deadline"),
        ("garbage", "lines that are no envelopes"),
    ):
        default = getattr(_DEFAULT, name)
        parser.add_argument(f"--{name}", type=_rate, default=default, help=f"share {what}: 0.02 or 2%% (default: {default})")
    parser.add_argument("--late-after", type=_seconds, metavar="SECONDS", help="default: a little more than the deadline")
    parser.add_argument("--partitions", type=_positive, default=_DEFAULT.partitions, help="default: %(default)s")
    parser.add_argument("--pain001", type=Path, nargs="+", default=list(SAMPLES), metavar="FILE", help="default: our own samples")
    _add_expected(parser)


def add_verify_arguments(parser: ArgumentParser) -> None:
    """Of what is compared; the strategy and the output are the configuration's, unless given."""
    parser.add_argument("--strategy", help="compare by this strategy (default: the configured one)")
    _add_expected(parser)


def plan_from(arguments: Namespace, *, drawn_seed: int, deadline_ms: Instant) -> Plan:
    """The plan that the arguments ask for. `drawn_seed` counts where none is given; `deadline_ms` is how long the service waits
    for what is missing: late envelopes come after it, unless the arguments say when.

    Raises:
        ValueError: What is lost and what is late are together more than all.
    """
    if arguments.losses + arguments.late > 1:
        raise ValueError("--losses and --late together are more than 1")
    late_after_ms = arguments.late_after
    return Plan(
        units=arguments.units,
        seed=drawn_seed if arguments.seed is None else arguments.seed,
        flows=arguments.flows,
        numbering=arguments.numbering,
        schema=arguments.schema,
        window=arguments.window,
        duplicates=arguments.duplicates,
        losses=arguments.losses,
        late=arguments.late,
        late_after_ms=deadline_ms + deadline_ms // 4 + 1_000 if late_after_ms is None else late_after_ms,
        garbage=arguments.garbage,
        partitions=arguments.partitions,
        pain001=tuple(arguments.pain001),
    )


def _add_expected(parser: ArgumentParser) -> None:
    parser.add_argument("--expected", type=Path, metavar="FILE", help="expectations (default: expected.jsonl beside the input)")


def _count(text: str) -> int:
    return _whole(text, at_least=0)


def _positive(text: str) -> int:
    return _whole(text, at_least=1)


def _whole(text: str, *, at_least: int) -> int:
    if not (text.isascii() and text.isdigit() and int(text) >= at_least):
        raise ArgumentTypeError(f"{text!r} is no whole number of {at_least} or more")
    return int(text)


def _rate(text: str) -> float:
    """A share, as a number from 0 to 1 or in per cent."""
    share = _number(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    if not 0 <= share <= 1:
        raise ArgumentTypeError(f"{text!r} is no share: from 0 to 1, or from 0% to 100%")
    return share


def _seconds(text: str) -> int:
    seconds = _number(text.removesuffix("s"))
    if not 0 <= seconds <= 86_400:
        raise ArgumentTypeError(f"{text!r} is no number of seconds from 0 to 86400")
    return round(seconds * 1_000)


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError as error:
        raise ArgumentTypeError(f"{text!r} is no number") from error
