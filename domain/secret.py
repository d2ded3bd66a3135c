"""A text that must never reach a log."""

import re

_TELLTALE = re.compile(r"passw|passphrase|pwd|secret|token|jaas|credential|private|(^|[.-])key$|keystore\.key", re.IGNORECASE)


class Secret(str):
    """Usable wherever a text is; its `repr`, and so that of any value that holds it, does not show it."""

    __slots__ = ()

    @property
    def masked(self) -> str:
        return "***" if self else ""

    def __repr__(self) -> str:
        return repr(self.masked)


def is_secret_name(path: str) -> bool:
    """Whether a key by its name may hold a secret: those of the Kafka clients, and mistyped ones."""
    return _TELLTALE.search(path) is not None
