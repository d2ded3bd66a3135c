"""All targets by name, and what they have in common."""

from collections.abc import Callable, Sequence
from random import Random
from typing import NamedTuple

from fuzz import (
    fuzz_configuration,
    fuzz_dead_letters,
    fuzz_decoding,
    fuzz_file_lines,
    fuzz_notification_settings,
    fuzz_pain001_files,
    fuzz_payment_parts,
    fuzz_position_metadata,
    fuzz_positions,
    fuzz_status_report,
    fuzz_stored_unit,
)
from fuzz.mutation import TOKENS, mutated

Mutate = Callable[[Random, bytes, Sequence[bytes], Sequence[bytes]], bytes]
"""From an input, others, and what is known to hurt to another input."""


class Target(NamedTuple):
    """What is fuzzed. `check` raises if a property does not hold of these bytes; its docstring states the properties.

    `seeds` makes inputs with something in them, `tokens` are what may be put in, `mutate` makes one input of others.
    """

    check: Callable[[bytes], None]
    seeds: Callable[[], list[bytes]]
    tokens: tuple[bytes, ...]
    mutate: Mutate = mutated


TARGETS = {
    "decoding": Target(fuzz_decoding.check, fuzz_decoding.seeds, TOKENS + fuzz_decoding.TOKENS),
    "file-lines": Target(fuzz_file_lines.check, fuzz_file_lines.seeds, TOKENS + fuzz_file_lines.TOKENS),
    "configuration": Target(fuzz_configuration.check, fuzz_configuration.seeds, TOKENS + fuzz_configuration.TOKENS),
    "notification-settings": Target(
        fuzz_notification_settings.check, fuzz_notification_settings.seeds, TOKENS + fuzz_notification_settings.TOKENS
    ),
    "status-report": Target(
        fuzz_status_report.check, fuzz_status_report.seeds, TOKENS + fuzz_status_report.TOKENS, fuzz_status_report.mutate
    ),
    "payment-parts": Target(
        fuzz_payment_parts.check, fuzz_payment_parts.seeds, TOKENS + fuzz_status_report.TOKENS, fuzz_payment_parts.mutate
    ),
    "pain001-files": Target(fuzz_pain001_files.check, fuzz_pain001_files.seeds, TOKENS + fuzz_pain001_files.TOKENS),
    "stored-unit": Target(fuzz_stored_unit.check, fuzz_stored_unit.seeds, TOKENS + fuzz_stored_unit.TOKENS),
    "positions": Target(fuzz_positions.check, fuzz_positions.seeds, TOKENS + fuzz_positions.TOKENS),
    "position-metadata": Target(
        fuzz_position_metadata.check, fuzz_position_metadata.seeds, TOKENS + fuzz_position_metadata.TOKENS
    ),
    "dead-letters": Target(fuzz_dead_letters.check, fuzz_dead_letters.seeds, TOKENS + fuzz_dead_letters.TOKENS),
}
