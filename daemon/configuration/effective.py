"""What `check` prints: every key with its value, and the layer that a changed one came from. Secrets are masked."""

import json
import re
from typing import Any

import msgspec

from daemon.configuration.resolution import REFERENCE, SettledValues
from daemon.configuration.schema import KEYS
from daemon.configuration.secret import Secret


class EffectiveValue(msgspec.Struct, frozen=True):
    """`value` as JSON: durations and sizes as in HOCON. `layer` is reference, `file …`, `environment (NAME)` or --set."""

    path: str
    value: Any
    layer: str

    def __str__(self) -> str:
        """A line of HOCON; where it is no default, a comment says who set it."""
        line = f"{self.path} = {_hocon(self.value)}"
        return line if self.layer == REFERENCE else f"{line}  # {self.layer}"


def effective_values(settled: SettledValues) -> tuple[EffectiveValue, ...]:
    """In the order of the keys; the Kafka clients' options last."""
    known = [EffectiveValue(path, kind.show(settled.values[path]), settled.layers[path]) for path, kind in KEYS.items()]
    options = [EffectiveValue(path, _masked(raw), settled.layers[path]) for path, raw in settled.client_options.items()]
    return (*known, *options)


def _masked(raw: Any) -> Any:
    return raw.masked if isinstance(raw, Secret) else raw


def _hocon(value: Any) -> str:
    if isinstance(value, str) and re.fullmatch(r"[A-Za-z0-9][\w./-]*", value, re.ASCII) and "//" not in value:
        return value
    return json.dumps(value, ensure_ascii=False)
