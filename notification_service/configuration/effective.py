"""What `check` prints: every key with its value, and the layer that a changed one came from. Secrets are masked."""

import json
import re
from typing import Any

import msgspec

from notification_service.configuration.resolution import REFERENCE, ResolvedValues
from notification_service.configuration.schema import SCHEMA, Schema
from resequencer.keys.secret import Secret
from resequencer.keys.value_types import Duration, Size


class EffectiveValue(msgspec.Struct, frozen=True):
    """`value` as JSON: durations and sizes (`is_measure`) as in HOCON.

    `layer` is reference, `file …`, `environment (NAME)` or --set.
    """

    path: str
    value: Any
    layer: str
    is_measure: bool = False

    def __str__(self) -> str:
        """Return a line of HOCON; if the value is no default, a comment names the layer that set it.

        Of a list of objects the comment says how many there are: HOCON merges two objects between which no comma stands, and one
        does not see that in a line.
        """
        line = f"{self.path} = {_hocon(self.value, is_measure=self.is_measure)}"
        if self.layer == REFERENCE:
            return line
        has_objects = isinstance(self.value, list) and any(isinstance(each, dict) for each in self.value)
        count = f"{len(self.value)} element{'s' if len(self.value) > 1 else ''}, " if has_objects else ""
        return f"{line}  # {count}{self.layer}"


def effective_values(resolved: ResolvedValues, schema: Schema = SCHEMA) -> tuple[EffectiveValue, ...]:
    """Return the values in the order of reference.conf, with the Kafka clients' options last."""
    schema = schema.with_names(resolved.values)
    shown = {path: schema.keys[path].show(value) if path in schema.keys else value for path, value in resolved.values.items()}
    measures = {path for path, takes in schema.keys.items() if isinstance(takes, Duration | Size)}
    return tuple(EffectiveValue(path, _masked(value), resolved.layers[path], path in measures) for path, value in shown.items())


def _masked(value: Any) -> Any:
    return value.masked if isinstance(value, Secret) else value


def _hocon(value: Any, *, is_measure: bool) -> str:
    """Return the value as HOCON. A text that begins with a digit is quoted: without quotes `5s` would be a duration."""
    is_plain = isinstance(value, str) and re.fullmatch(r"[A-Za-z0-9][\w./-]*", value, re.ASCII) and "//" not in value
    if is_plain and (is_measure or not value[0].isdigit()):
        return str(value)
    return json.dumps(value, ensure_ascii=False)
