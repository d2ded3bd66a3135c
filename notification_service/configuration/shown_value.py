"""A refused value of the configuration as errors show it."""

import json
from datetime import timedelta

from notification_service.configuration.hocon.parser import Plain
from resequencer.keys.secret import is_secret_name
from resequencer.keys.value_types import Duration, Url, ValueType
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
