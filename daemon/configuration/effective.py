"""What `check` prints: every key with its value, and the layer that a changed one came from. Secrets are masked."""

import json
import re
from typing import Any

import msgspec

from daemon.configuration.resolution import REFERENCE, ResolvedValues
from daemon.configuration.schema import SCHEMA, Schema
from domain.secret import Secret


class EffectiveValue(msgspec.Struct, frozen=True):
    """`value` as JSON: durations and sizes as in HOCON. `layer` is reference, `file …`, `environment (NAME)` or --set."""

    path: str
    value: Any
    layer: str

    def __str__(self) -> str:
        """Return a line of HOCON; if the value is no default, a comment names the layer that set it."""
        line = f"{self.path} = {_hocon(self.value)}"
        return line if self.layer == REFERENCE else f"{line}  # {self.layer}"


def effective_values(resolved: ResolvedValues, schema: Schema = SCHEMA) -> tuple[EffectiveValue, ...]:
    """Return the values in the order of reference.conf, with the Kafka clients' options last."""
    shown = {path: schema.keys[path].show(value) if path in schema.keys else value for path, value in resolved.values.items()}
    return tuple(EffectiveValue(path, _masked(value), resolved.layers[path]) for path, value in shown.items())


def _masked(value: Any) -> Any:
    return value.masked if isinstance(value, Secret) else value


def _hocon(value: Any) -> str:
    if isinstance(value, str) and re.fullmatch(r"[A-Za-z0-9][\w./-]*", value, re.ASCII) and "//" not in value:
        return value
    return json.dumps(value, ensure_ascii=False)
