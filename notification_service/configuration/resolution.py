"""Makes one typed value per key from layers of HOCON, or a list of all problems."""

import json
import re
from argparse import ArgumentParser, ArgumentTypeError
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from notification_service.aggregation.settings import AggregationSettings
from notification_service.configuration.constraints import POLL_INTERVAL, broken_constraints
from notification_service.configuration.hocon import Document, Plain, Resolved, parse_file, parse_text, resolve
from notification_service.configuration.kafka_client_options import poll_interval_ms, refused_options
from notification_service.configuration.receiver_constraints import broken_receivers, broken_stores
from notification_service.configuration.schedule_constraints import broken_schedules
from notification_service.configuration.schema import SCHEMA, ConfigurationRefused, Schema, find_nearest, path_of
from notification_service.configuration.sections import (
    Ingress,
    Lookup,
    Notifications,
    Orders,
    RecordsArchive,
    Resequencers,
    Storages,
)
from notification_service.console.access.settings import HttpSettings
from notification_service.delivery.settings import LedgerSettings
from resequencer.errors import ConfigurationError
from resequencer.keys.secret import Secret, is_secret_name
from resequencer.keys.value_types import Choice, Duration, Mismatch, Object, OptionOrForeign, Size, Url, ValueType
from resequencer.printable import without_secrets

_LONGEST = 120
"""How many characters of a value are shown."""


def shown_value(path: str, raw: Plain, expected: ValueType | None = None) -> str:
    """Return a refused value as the user wrote it, cut to a line; a possible secret is not shown.

    `expected` is the kind of the key, or of the one that may be meant.
    """
    if isinstance(expected, Url) and isinstance(raw, str):
        raw = expected.masked(raw)
    if is_secret_name(path) and raw is not None:
        return "***"
    if isinstance(raw, timedelta):
        return f"the duration {Duration('0s', '1s').show(raw // timedelta(milliseconds=1))}"
    text = without_secrets(json.dumps(raw, ensure_ascii=False, default=str))
    return text if len(text) <= _LONGEST else text[: _LONGEST - 3] + "…"


def unknown_keys(resolved: Resolved, schema: Schema) -> Iterator[ConfigurationError]:
    """Return a problem for each unknown key, and for each value that stands where a section is expected, or the reverse."""
    for path, raw in resolved.values.items():
        if path in schema.keys or schema.is_option(path) or _is_variable(path, resolved.variables):
            continue
        if schema.is_section(path):
            if raw != {}:
                yield ConfigurationError(path, f"{shown_value(path, raw)} stands where keys are expected: {path} {{ … }}")
            continue
        around = next((key for key in schema.keys if path.startswith(key + ".")), None)
        if around is None:
            yield ConfigurationError(path, _unknown(path, raw, find_nearest(path, schema.keys), schema))
        elif around not in resolved.values:
            yield ConfigurationError(around, f"is a section with keys; expected: {schema.keys[around].expects}")


def _is_variable(path: str, variables: frozenset[str]) -> bool:
    """Return whether this is a user's own key, outside of the service's, that a substitution refers to."""
    return any(path == each or path.startswith(each + ".") for each in variables)


def _unknown(path: str, raw: Plain, nearest: str | None, schema: Schema) -> str:
    expected = schema.keys[nearest] if nearest else None
    text = "***" if nearest and is_secret_name(nearest) else shown_value(path, raw, expected)
    return f"unknown key (value {text})" + (f"; the nearest known key is {nearest}" if nearest else "")


_FLAG = "--set"


def add_overrides(parser: ArgumentParser, dest: str = "overrides", **more: Any) -> None:
    parser.add_argument(_FLAG, type=_split, action="append", default=[], dest=dest, metavar="key=value", **more)


def one_by_one(argv: Sequence[str]) -> Iterator[str]:
    """Repeat the flag before each setting, so that argparse cannot take an argument behind the settings for another setting.

    A setting has an equals sign; a subcommand (`list`) has none.
    """
    is_first = is_behind = False
    for argument in argv:
        if is_first:
            is_first, is_behind = False, True
        elif argument == _FLAG:
            is_first = True
        elif is_behind and "=" in argument and not argument.startswith("-"):
            yield _FLAG
        else:
            is_behind = False
        yield argument


def _split(text: str) -> str:
    key, separator, _ = text.partition("=")
    if not separator or not key.strip():
        raise ArgumentTypeError("write key=value")
    return text


_SHIPPED = Path(__file__).parents[1] / "conf"
"""A link to the checkout's `conf/`; in a wheel, its files."""


def find_shipped(path: Path) -> Path:
    """Return `path`; if it is `conf/…` and does not exist here, the file of that name that is installed with the service."""
    try:
        if path.parent != Path("conf") or path.exists():
            return path
    except PermissionError:
        return path  # The caller, which reads the file, reports that it is missing.
    installed = _SHIPPED / path.name
    return installed if installed.is_file() else path


def read_reference() -> str:
    """Return the text of reference.conf of the installed version."""
    return (_SHIPPED / "reference.conf").read_text(encoding="utf-8")


def read_keys_of_reference() -> str:
    """Return reference.conf without its comments. To parse these takes three times as long as to parse its keys: 0.1 s."""
    return "".join(line for line in read_reference().splitlines(keepends=True) if not line.lstrip().startswith("#"))


REFERENCE = "reference"

_RUN_DIRECTORY = path_of(Notifications, "run_directory")
_SETTINGS = path_of(Notifications, "settings")
_STASH_BYTES = path_of(Resequencers, "stash_limit_bytes_per_worker")
_RECORD_BYTES = path_of(Ingress, "max_record_bytes")


class ResolvedValues(msgspec.Struct, frozen=True):
    """A typed value for every key, behind them the Kafka clients' options, and the layer that set each.

    `places` are `file:line` of the values that a file has.
    """

    values: Mapping[str, Any]
    layers: Mapping[str, str]
    places: Mapping[str, str] = {}


def resolve_values(
    file: Path, overrides: Sequence[str], schema: Schema = SCHEMA, reference: Document | None = None
) -> ResolvedValues:
    """Read reference.conf, the file and the overrides (`key=value` in HOCON), the later on top.

    Raises:
        ConfigurationError: A file cannot be read or resolved.
        ConfigurationRefused: All that is wrong with keys, values and the constraints between them.
    """
    found = resolve([reference or _reference(), parse_file(file), *map(_override, overrides)])
    schema = schema.with_names(found.values)
    resolved = _with_objects(found, schema)
    taken = {path: default for path, default in schema.defaults.items() if path not in resolved.values}
    problems = list(unknown_keys(resolved, schema))
    values: dict[str, Any] = {}
    for path, raw in (*resolved.values.items(), *((path, resolved.values.get(default)) for path, default in taken.items())):
        if path in schema.keys:
            try:
                values[path] = schema.keys[path].read(raw)
            except Mismatch as why:
                problems.append(ConfigurationError(path, _mismatch(path, raw, schema.keys[path], str(why))))
    options = {path: raw for path, raw in resolved.values.items() if schema.is_option(path) and raw is not None}
    strange = {path: raw for path, raw in options.items() if not isinstance(raw, bool | int | float | str)}
    problems.extend(_wrong_options(strange))
    known = {path: raw for path, raw in options.items() if path not in strange}
    problems.extend(refused_options(known))
    problems.extend(broken_receivers({**values, **known}, schema))
    problems.extend(broken_schedules(values, schema))
    problems.extend(broken_stores(values, schema))
    problems.extend(broken_constraints(values | {POLL_INTERVAL: poll_interval_ms(known)}))
    if not problems:
        # A key can be missing only if another value replaces it or its section, which is reported above.
        problems.extend(ConfigurationError(path, "has no value") for path in schema.keys if path not in values)
    if problems:
        places = resolved.places
        raise ConfigurationRefused([ConfigurationError(each.path, each.problem, places.get(each.path)) for each in problems])
    typed = {path: _option(path, raw) for path, raw in options.items()}
    layers = {**resolved.layers, **{path: resolved.layers[default] for path, default in taken.items()}}
    return ResolvedValues(_with_derived(values, file) | typed, layers, resolved.places)


@cache
def _reference() -> Document:
    return parse_text(read_keys_of_reference(), REFERENCE, where="reference.conf")


def _override(text: str) -> Document:
    key = text.partition("=")[0].strip()
    return parse_text(text, "--set", where=f"--set {key}")


def _with_objects(resolved: Resolved, schema: Schema) -> Resolved:
    """Return the values with the keys below one that takes an object as that object, and with the layer of its last part."""
    values, layers, places = dict(resolved.values), dict(resolved.layers), dict(resolved.places)
    for key in (path for path, takes in schema.keys.items() if isinstance(takes, Object)):
        below = [path for path in values if path.startswith(f"{key}.")]
        whole: dict[str, Any] = {}
        for path in below:
            *sections, name = path.removeprefix(f"{key}.").split(".")
            place = whole
            for section in sections:
                place = place.setdefault(section, {})
            place[name] = values.pop(path)
            layers[key] = layers.pop(path)
            if path in places:
                places[key] = places.pop(path)
        if below:
            values[key] = whole
    return Resolved(values, layers, resolved.variables, places)


def _mismatch(path: str, raw: Plain, expected: ValueType, why: str) -> str:
    if why:
        return f"{shown_value(path, raw, expected)}: {why}"
    hint = ""
    if isinstance(expected, Choice | OptionOrForeign) and isinstance(raw, str):
        options = {each.casefold(): each for each in expected.options}
        if nearest := find_nearest(raw.casefold(), options):
            hint = f"; did you mean {options[nearest]}?"
    return f"{shown_value(path, raw, expected)} is refused; expected: {expected.expects}{hint}"


def _wrong_options(options: Mapping[str, Plain]) -> Iterator[ConfigurationError]:
    for path, raw in options.items():
        text = f"{shown_value(path, raw)} is refused; Kafka's options are a text, a number (milliseconds, bytes) or a boolean"
        yield ConfigurationError(path, text)


def _option(path: str, raw: Plain) -> Any:
    return Secret(raw) if isinstance(raw, str) and is_secret_name(path) else raw


def _with_derived(values: dict[str, Any], file: Path) -> dict[str, Any]:
    """Fill keys that are null with values derived from other keys, and with the shipped settings if there are none here."""
    run_directory = values[_RUN_DIRECTORY] or Path("run") / (file.name.removesuffix(".conf") or file.name)
    derived = {
        _RUN_DIRECTORY: run_directory,
        path_of(Ingress, "file_directory"): run_directory / "in",
        path_of(Ingress, "archive_directory"): run_directory / "archive",
        path_of(Orders, "directory"): run_directory / "orders",
        path_of(Notifications, "output_directory"): run_directory / "out",
        path_of(AggregationSettings, "facts_directory"): run_directory / "facts",
        path_of(AggregationSettings, "directory"): run_directory / "groups",
        path_of(Lookup, "directory"): run_directory / "lookups",
        path_of(RecordsArchive, "location"): str(run_directory / "records"),
        path_of(Storages, "embedded_file"): run_directory / "state.db",
        path_of(LedgerSettings, "file"): run_directory / "delivery.db",
        path_of(HttpSettings, "users_file"): run_directory / "console-users.json",
        path_of(Resequencers, "stash_bytes"): max(values[_STASH_BYTES] // 8, 2 * values[_RECORD_BYTES]),
    }
    given = {_SETTINGS: find_shipped(values[_SETTINGS])}
    return values | {path: value for path, value in derived.items() if values[path] is None} | given


class EffectiveValue(msgspec.Struct, frozen=True):
    """`value` as JSON: durations and sizes (`is_measure`) as in HOCON.

    `layer` is reference, `file …`, `environment (NAME)` or --set. `place` is the `file:line` of a value of a file, which may be
    an included one; None where it is not known.
    """

    path: str
    value: Any
    layer: str
    is_measure: bool = False
    place: str | None = None

    @property
    def is_changed(self) -> bool:
        """Whether something else than reference.conf gives the value."""
        return self.layer != REFERENCE

    def __str__(self) -> str:
        """Return a line of HOCON; if the value is no default, a comment names the layer that set it.

        Of a list of objects the comment says how many there are: HOCON merges two objects between which no comma stands, and one
        does not see that in a line.
        """
        line = f"{self.path} = {_hocon(self.value, is_measure=self.is_measure)}"
        if not self.is_changed:
            return line
        has_objects = isinstance(self.value, list) and any(isinstance(each, dict) for each in self.value)
        count = f"{len(self.value)} element{'s' if len(self.value) > 1 else ''}, " if has_objects else ""
        return f"{line}  # {count}{self.layer if self.place is None else f'file {self.place}'}"


def effective_values(resolved: ResolvedValues, schema: Schema = SCHEMA) -> tuple[EffectiveValue, ...]:
    """Return the values in the order of reference.conf, with the Kafka clients' options last."""
    schema = schema.with_names(resolved.values)
    shown = {path: schema.keys[path].show(value) if path in schema.keys else value for path, value in resolved.values.items()}
    measures = {path for path, takes in schema.keys.items() if isinstance(takes, Duration | Size)}
    return tuple(
        EffectiveValue(path, _masked(value), resolved.layers[path], path in measures, resolved.places.get(path))
        for path, value in shown.items()
    )


def _masked(value: Any) -> Any:
    return value.masked if isinstance(value, Secret) else value


def _hocon(value: Any, *, is_measure: bool) -> str:
    """Return the value as HOCON. A text that begins with a digit is quoted: without quotes `5s` would be a duration."""
    is_plain = isinstance(value, str) and re.fullmatch(r"[A-Za-z0-9][\w./-]*", value, re.ASCII) and "//" not in value
    if is_plain and (is_measure or not value[0].isdigit()):
        return str(value)
    return json.dumps(value, ensure_ascii=False)
