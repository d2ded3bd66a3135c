"""Makes one typed value per key from layers of HOCON, or a list of all problems."""

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from notification_service.aggregation.settings import AggregationSettings
from notification_service.configuration.constraints import POLL_INTERVAL, broken_constraints
from notification_service.configuration.hocon.parser import Document, Plain, Resolved, parse_file, parse_text, resolve
from notification_service.configuration.kafka_client_options import poll_interval_ms, refused_options
from notification_service.configuration.receiver_constraints import broken_receivers
from notification_service.configuration.refusal import ConfigurationRefused
from notification_service.configuration.schedule_constraints import broken_schedules
from notification_service.configuration.schema import SCHEMA, Schema, find_nearest, path_of
from notification_service.configuration.sections import (
    Ingress,
    Lookup,
    Notifications,
    Orders,
    RecordsArchive,
    Resequencers,
    Storages,
)
from notification_service.configuration.shipped import find_shipped, read_keys_of_reference
from notification_service.configuration.shown_value import shown_value
from notification_service.configuration.store_constraints import broken_stores
from notification_service.configuration.unknown_keys import unknown_keys
from notification_service.console.settings import HttpSettings
from notification_service.delivery.settings import LedgerSettings
from resequencer.errors import ConfigurationError
from resequencer.keys.secret import Secret, is_secret_name
from resequencer.keys.value_types import Choice, Mismatch, Object, ValueType

REFERENCE = "reference"

_RUN_DIRECTORY = path_of(Notifications, "run_directory")
_SETTINGS = path_of(Notifications, "settings")
_STASH_BYTES = path_of(Resequencers, "stash_limit_bytes_per_worker")
_RECORD_BYTES = path_of(Ingress, "max_record_bytes")


class ResolvedValues(msgspec.Struct, frozen=True):
    """A typed value for every key, behind them the Kafka clients' options, and the layer that set each."""

    values: Mapping[str, Any]
    layers: Mapping[str, str]


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
            except Mismatch:
                problems.append(ConfigurationError(path, _mismatch(path, raw, schema.keys[path])))
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
        raise ConfigurationRefused(problems)
    typed = {path: _option(path, raw) for path, raw in options.items()}
    layers = {**resolved.layers, **{path: resolved.layers[default] for path, default in taken.items()}}
    return ResolvedValues(_with_derived(values, file) | typed, layers)


@cache
def _reference() -> Document:
    return parse_text(read_keys_of_reference(), REFERENCE, where="reference.conf")


def _override(text: str) -> Document:
    key = text.partition("=")[0].strip()
    return parse_text(text, "--set", where=f"--set {key}")


def _with_objects(resolved: Resolved, schema: Schema) -> Resolved:
    """Return the values with the keys below one that takes an object as that object, and with the layer of its last part."""
    values, layers = dict(resolved.values), dict(resolved.layers)
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
        if below:
            values[key] = whole
    return Resolved(values, layers, resolved.variables)


def _mismatch(path: str, raw: Plain, expected: ValueType) -> str:
    hint = ""
    if isinstance(expected, Choice) and isinstance(raw, str) and (nearest := find_nearest(raw, expected.options)):
        hint = f"; did you mean {nearest}?"
    return f"{shown_value(path, raw, expected)} is refused; {expected.expects} is expected{hint}"


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
