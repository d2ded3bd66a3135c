"""The arguments of `resequencer simulate`."""

import re
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from pathlib import Path

import msgspec

from notification_service.simulator.generate.plan import SAMPLES, Bursts, Events, Flows, Keys, Numbering, Plan, Schema
from resequencer.clock import Instant

_DAY_SECONDS = 86_400
_RATE = re.compile(r"(.+)/(s|min|h)")
_PER_SECOND = {"s": 1, "min": 60, "h": 3_600}


def count(text: str) -> int:
    """Convert a whole number from 0 on."""
    return _whole(text, at_least=0)


def positive(text: str) -> int:
    """Convert a whole number from 1 on."""
    return _whole(text, at_least=1)


def share(text: str) -> float:
    """Convert a share, given as a number from 0 to 1 or in per cent."""
    number = _number(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    if not 0 <= number <= 1:
        raise ArgumentTypeError(f"{text!r} is not a share: give a number from 0 to 1, or from 0% to 100%")
    return number


def seconds(text: str) -> int:
    """Convert seconds to milliseconds."""
    number = _number(text.removesuffix("s"))
    if not 0 <= number <= _DAY_SECONDS:
        raise ArgumentTypeError(f"{text!r} is not a number of seconds from 0 to {_DAY_SECONDS}")
    return round(number * 1_000)


def some_seconds(text: str) -> int:
    """Convert seconds, at least 0.1, to milliseconds."""
    milliseconds = seconds(text)
    if milliseconds < 100:
        raise ArgumentTypeError(f"{text!r} is not a number of seconds from 0.1 to {_DAY_SECONDS}")
    return milliseconds


def rate(text: str) -> float:
    """Convert a rate to lines per second."""
    match = _RATE.fullmatch(text)
    per_second = _number(match[1]) / _PER_SECOND[match[2]] if match else 0.0
    if not 0.001 <= per_second <= 1e9:
        raise ArgumentTypeError(f"{text!r} is not a rate: give 500/s, 30000/min or 1000/h, and at least 4/h")
    return per_second


def exponent(text: str) -> float:
    number = _number(text)
    if not 0.5 <= number <= 4:
        raise ArgumentTypeError(f"{text!r} is not an exponent from 0.5 to 4")
    return number


def bursts(text: str) -> Bursts:
    """Convert a number of envelopes and the seconds of silence after them."""
    envelopes, separator, silence = text.partition("/")
    if not separator:
        raise ArgumentTypeError(f"{text!r} gives no bursts: 500/30 means 500 envelopes, then 30 seconds of silence")
    return Bursts(positive(envelopes), some_seconds(silence))


def _whole(text: str, *, at_least: int) -> int:
    if not (text.isascii() and text.isdigit() and int(text) >= at_least):
        raise ArgumentTypeError(f"{text!r} is not a whole number of {at_least} or more")
    return int(text)


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError as error:
        raise ArgumentTypeError(f"{text!r} is not a number") from error


_DEFAULT = Plan(units=1_000, seed=0)


class Judge(msgspec.Struct, frozen=True):
    """The configured service's limits that matter here: how long it waits for missing events, and the largest value."""

    deadline_ms: Instant
    max_value_bytes: int

    @property
    def late_after_ms(self) -> int:
        """The deadline, plus a quarter of it and a second."""
        return self.deadline_ms + self.deadline_ms // 4 + 1_000


def add_simulate_arguments(parser: ArgumentParser) -> None:
    """Add the arguments of the simulation. The configuration says where the lines are written; `--expected` alone is set here."""
    parser.add_argument("--seed", type=count, help="the same seed writes the same bytes (default: a new one, printed)")
    parser.add_argument("--partitions", type=positive, default=_DEFAULT.partitions, help="default: %(default)s")
    add_expected(parser)
    _add_payments(parser)
    _add_disorder(parser)
    _add_time(parser)


def plan_from(arguments: Namespace, *, drawn_seed: int, judge: Judge, events: Events = Events.PAYMENTS) -> Plan:
    """Return the plan for the arguments.

    `drawn_seed` is used without `--seed`. Late envelopes come after the deadline, unless `--late-after` is given.

    Raises:
        ValueError: The arguments contradict each other, or would make the service rightly do what `verify` takes for a deviation.
    """
    _refuse_contradictions(arguments, judge)
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
        late_after_ms=judge.late_after_ms if late_after_ms is None else late_after_ms,
        garbage=arguments.garbage,
        partitions=arguments.partitions,
        pain001=tuple(arguments.pain001),
        keys=arguments.keys,
        exponent=arguments.exponent,
        conflicts=arguments.conflicts,
        max_value_bytes=judge.max_value_bytes,
        rate=arguments.rate,
        bursts=arguments.bursts,
        is_backlog=arguments.backlog,
        events=events,
    )


def _refuse_contradictions(arguments: Namespace, judge: Judge) -> None:
    if arguments.losses + arguments.late > 1:
        raise ValueError("--losses and --late together are more than 1")
    if arguments.backlog and not (arguments.rate is arguments.bursts is arguments.late_after is None):
        raise ValueError("--backlog is written at once: do not give --rate, --bursts or --late-after with it")
    if arguments.rate is not None:
        window = int(arguments.rate * judge.deadline_ms / 2_000)
        if arguments.window > window:
            raise ValueError(
                f"at this --rate the --window of {arguments.window} lasts longer than half the deadline of "
                f"{judge.deadline_ms / 1_000:g} s, so the service would take delayed envelopes for lost; use --window {window}"
            )


def _add_payments(parser: ArgumentParser) -> None:
    group = parser.add_argument_group(
        "payments", "With events.format = cloudevents they are orders of a shop, without --schema and --pain001."
    )
    group.add_argument("--units", type=positive, default=_DEFAULT.units, help="payments (default: %(default)s)")
    group.add_argument("--flows", choices=[*Flows], type=Flows, default=_DEFAULT.flows, help="number of flows of a payment")
    group.add_argument(
        "--numbering", choices=[*Numbering], type=Numbering, default=_DEFAULT.numbering, help="numbering of a payment's events"
    )
    group.add_argument("--schema", choices=[*Schema], type=Schema, default=_DEFAULT.schema, help="version of the envelopes")
    group.add_argument(
        "--pain001", type=Path, nargs="+", default=list(SAMPLES), metavar="FILE", help="default: the samples of the project"
    )
    group.add_argument(
        "--keys",
        choices=[*Keys],
        type=Keys,
        default=_DEFAULT.keys,
        help="uniform: each payment under way is equally likely to come next (default); zipf: among a thousand payments the "
        "k-th busiest has 512 / k^EXPONENT envelopes (at least the usual 4 … 12), and is so much likelier to come next",
    )
    group.add_argument(
        "--exponent", type=exponent, default=_DEFAULT.exponent, help="exponent of --keys zipf (default: %(default)g)"
    )


def _add_disorder(parser: ArgumentParser) -> None:
    group = parser.add_argument_group("disorder", "A SHARE refers to all envelopes: 0.02 or 2%.")
    group.add_argument(
        "--window",
        type=count,
        default=_DEFAULT.window,
        help="maximum number of places by which an envelope moves (default: %(default)s)",
    )
    for name, what in (
        ("duplicates", "written twice"),
        ("conflicts", "written with another record of the same id and other content; the second of the two is refused"),
        ("losses", "never written"),
        ("late", "written after the deadline"),
        ("garbage", "lines that are no envelopes; every kind occurs once before any kind repeats"),
    ):
        default = getattr(_DEFAULT, name)
        group.add_argument(f"--{name}", type=share, default=default, metavar="SHARE", help=f"{what} (default: {default:g})")
    group.add_argument("--late-after", type=seconds, metavar="SECONDS", help="default: a little more than the deadline")


def _add_time(parser: ArgumentParser) -> None:
    group = parser.add_argument_group("time")
    group.add_argument("--rate", type=rate, help="lines per time, as 500/s or 30000/min (default: as fast as possible)")
    group.add_argument(
        "--bursts",
        type=bursts,
        metavar="N/SECONDS",
        help="N envelopes, then this many seconds without any, and again (no envelope moves to another burst)",
    )
    group.add_argument(
        "--backlog",
        action="store_true",
        help="for a service that is started afterwards: late envelopes follow at once behind all others, and the service "
        "must not mark any envelope because of them",
    )


def add_expected(parser: ArgumentParser) -> None:
    parser.add_argument("--expected", type=Path, metavar="FILE", help="expectations (default: expected.jsonl beside the input)")
