"""All targets by name, and their common structure."""

from collections.abc import Callable, Sequence
from random import Random
from typing import NamedTuple

from fuzz.mutation import TOKENS, mutated
from fuzz.readers import (
    configuration,
    dead_letters,
    decoding,
    file_lines,
    notification_settings,
    pain001_files,
    payment_parts,
    position_metadata,
    positions,
    status_report,
    stored_unit,
)

Mutate = Callable[[Random, bytes, Sequence[bytes], Sequence[bytes]], bytes]
"""Makes an input from an input, other inputs, and values that often break parsers."""


class Target(NamedTuple):
    """A target of fuzzing. `check` raises if a property does not hold for the bytes; its docstring states the properties.

    `seeds` yields meaningful inputs, `tokens` are values to insert, `mutate` makes an input from others.
    """

    check: Callable[[bytes], None]
    seeds: Callable[[], list[bytes]]
    tokens: tuple[bytes, ...]
    mutate: Mutate = mutated


TARGETS = {
    "decoding": Target(decoding.check, decoding.seeds, TOKENS + decoding.TOKENS),
    "file-lines": Target(file_lines.check, file_lines.seeds, TOKENS + file_lines.TOKENS),
    "configuration": Target(configuration.check, configuration.seeds, TOKENS + configuration.TOKENS),
    "notification-settings": Target(
        notification_settings.check, notification_settings.seeds, TOKENS + notification_settings.TOKENS
    ),
    "status-report": Target(status_report.check, status_report.seeds, TOKENS + status_report.TOKENS, status_report.mutate),
    "payment-parts": Target(payment_parts.check, payment_parts.seeds, TOKENS + status_report.TOKENS, payment_parts.mutate),
    "pain001-files": Target(pain001_files.check, pain001_files.seeds, TOKENS + pain001_files.TOKENS),
    "stored-unit": Target(stored_unit.check, stored_unit.seeds, TOKENS + stored_unit.TOKENS),
    "positions": Target(positions.check, positions.seeds, TOKENS + positions.TOKENS),
    "position-metadata": Target(position_metadata.check, position_metadata.seeds, TOKENS + position_metadata.TOKENS),
    "dead-letters": Target(dead_letters.check, dead_letters.seeds, TOKENS + dead_letters.TOKENS),
}
