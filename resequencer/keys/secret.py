"""A text that must never reach a log."""

import re

_TELLTALE = re.compile(r"passw|passphrase|pwd|secret|token|jaas|credential|private|(^|[.-])key$|keystore\.key", re.IGNORECASE)


class Secret(str):
    """A text whose `repr` does not show it. So the `repr` of a value that contains it does not show it either."""

    __slots__ = ()

    @property
    def masked(self) -> str:
        return "***" if self else ""

    def __repr__(self) -> str:
        return repr(self.masked)


def is_secret_name(path: str) -> bool:
    """Whether a key's name suggests a secret, also for keys of the Kafka clients and mistyped keys."""
    return _TELLTALE.search(path) is not None
