"""How the receiver behaves: on the command line, in JSON while it runs, and as a value."""

from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, TypeVar

Windows = tuple[tuple[float, float], ...]
"""From and to, in seconds since the start of the receiver; the end is not in the window."""

ALWAYS: Windows = ((0.0, float("inf")),)
_T = TypeVar("_T")


class BehaviourRefused(ValueError):
    """A name that is unknown, or a value that does not fit. The text says which."""


@dataclass(frozen=True, slots=True)
class Behaviour:
    """What a call meets, and in this order: the first that applies is the answer.

    A share is from 0 to 1. The shares of calls are drawn by `seed` and the number of the call since the last change, so the same
    calls in the same order meet the same. The share of units is chosen by `seed` and unit, so the same unit is always refused.

    Attributes:
        connections: The maximum number of concurrent calls; a call above it gets 429. 0: no limit.
        unauthorized: Every call gets 401.
        asleep: In these windows every call gets 503, and `retry_after` in seconds as a header if it is not 0.
        rate: Calls per second, in bursts of at most this number; a call above it gets 429 with Retry-After. 0: no limit.
        faults: The share of calls that get 500.
        unknown: The share of calls that get 418.
        breaks: The share of calls that are executed, and then get no answer: the connection is broken.
        lates: The share of calls that are executed at once, and are answered after `late_seconds`.
        rejects: The share of units whose announcement and notifications get 422.
        announcing: A notification of a unit that is not announced gets 404.
        digest_seconds: A unit is found this time after its announcement.
        forgets: In these windows an announcement from before the window is forgotten as soon as a call needs it.
    """

    asleep: Windows = ()
    retry_after: int = 0
    connections: int = 0
    rate: float = 0.0
    forgets: Windows = ()
    announcing: bool = False
    digest_seconds: float = 0.0
    rejects: float = 0.0
    faults: float = 0.0
    breaks: float = 0.0
    lates: float = 0.0
    late_seconds: float = 1.0
    unauthorized: bool = False
    unknown: float = 0.0
    seed: int = 0

    def changed(self, settings: object, now: float) -> "Behaviour":
        """Return the behaviour with the changes of a JSON object, whose windows count from `now`.

        Names are those of the command line, such as `late-seconds`. What is not named stays.

        Raises:
            BehaviourRefused: A name is unknown, or a value does not fit.
        """
        if not isinstance(settings, Mapping):
            raise BehaviourRefused(f"a behaviour is a JSON object, not {settings!r}")
        unknown = sorted(settings.keys() - _READERS.keys())
        if unknown:
            raise BehaviourRefused(f"there is no '{unknown[0]}'; there are {', '.join(sorted(_READERS))}")
        changes: dict[str, Any] = {_field(name): _READERS[name](name, value, now) for name, value in settings.items()}
        return replace(self, **changes)

    def as_json(self) -> Mapping[str, object]:
        """Return what `changed` takes, with windows in seconds since the start; a window without an end is `[0, null]`."""
        return {name: _shown(getattr(self, _field(name))) for name in _READERS}

    def as_options(self) -> Sequence[str]:
        """Return the options of the command line that make this behaviour."""
        options: list[str] = []
        for name in _READERS:
            value, usual = getattr(self, _field(name)), getattr(_USUAL, _field(name))
            if isinstance(value, tuple):
                options += [f"--{name}={'always' if each == ALWAYS[0] else f'{each[0]}:{each[1]}'}" for each in value]
            elif value != usual:
                options.append(f"--{name}" if value is True else f"--{name}={value}")
        return options


def is_in(windows: Windows, now: float) -> bool:
    return any(begin <= now < end for begin, end in windows)


def add_options(parser: ArgumentParser) -> None:
    """Add an option for each part of the behaviour; windows are given as `10:20`, several times if need be, or as `always`."""
    for each in fields(Behaviour):
        name, usual = f"--{_option(each.name)}", getattr(_USUAL, each.name)
        if isinstance(usual, bool):
            parser.add_argument(name, action="store_true")
        elif isinstance(usual, tuple):
            parser.add_argument(name, action="append", default=[], type=_window, metavar="FROM:TO")
        else:
            parser.add_argument(name, type=type(usual), default=usual)


def behaviour_of(arguments: Namespace) -> Behaviour:
    """Return the behaviour that the options of `add_options` tell.

    Raises:
        BehaviourRefused: A value does not fit.
    """
    settings = {_option(each.name): getattr(arguments, each.name) for each in fields(Behaviour)}
    return Behaviour().changed(settings, 0)


def _field(name: str) -> str:
    return name.replace("-", "_")


def _option(field: str) -> str:
    return field.replace("_", "-")


def _window(text: str) -> tuple[float, float]:
    if text == "always":
        return ALWAYS[0]
    begin, _, end = text.partition(":")
    try:
        return float(begin), float(end)
    except ValueError:
        raise ArgumentTypeError(f"'{text}' is neither 'always' nor of the form 10:20") from None


def _shown(value: object) -> object:
    if isinstance(value, tuple):
        return [[begin, None if end == ALWAYS[0][1] else end] for begin, end in value]
    return value


def _windows(name: str, value: Any, now: float) -> Windows:
    if isinstance(value, bool):
        return ((now, ALWAYS[0][1]),) if value else ()
    try:
        windows = tuple((now + float(begin), ALWAYS[0][1] if end is None else now + float(end)) for begin, end in value)
    except (TypeError, ValueError):
        windows = ((1.0, 0.0),)
    if any(begin > end for begin, end in windows):
        raise BehaviourRefused(f"'{name}' takes true, false, or a list of [from, to] in seconds, not {value!r}")
    return windows


def _flag(name: str, value: object, _: float) -> bool:
    if not isinstance(value, bool):
        raise BehaviourRefused(f"'{name}' takes true or false, not {value!r}")
    return value


def _number(kind: Callable[[float], _T], maximum: float, what: str) -> Callable[[str, object, float], _T]:
    def read(name: str, value: object, _: float) -> _T:
        fits = isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value <= maximum and kind(value) == value
        if not fits:
            raise BehaviourRefused(f"'{name}' takes {what}, not {value!r}")
        assert isinstance(value, (int, float))
        return kind(value)

    return read


_share = _number(float, 1, "a share from 0 to 1")
_amount = _number(float, 1e9, "a number from 0 on")
_count = _number(int, 1e9, "a whole number from 0 on")

_READERS: Mapping[str, Callable[[str, Any, float], object]] = {
    "asleep": _windows,
    "retry-after": _count,
    "connections": _count,
    "rate": _amount,
    "forgets": _windows,
    "announcing": _flag,
    "digest-seconds": _amount,
    "rejects": _share,
    "faults": _share,
    "breaks": _share,
    "lates": _share,
    "late-seconds": _amount,
    "unauthorized": _flag,
    "unknown": _share,
    "seed": _count,
}
_USUAL = Behaviour()
