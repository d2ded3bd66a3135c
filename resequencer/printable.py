"""Foreign texts made safe to print: on one line, and without control sequences for a terminal."""

import re

from resequencer.keys.secret import is_secret_name

_PASSWORD = re.compile(r"(://[^/@:\s]*:)\S*(@)")
_PARAMETER = re.compile(r"([?&;]([^=&;?#\s]+)=)[^&;#\s\"']+")
_WITHIN = frozenset({"sig", "signature", "code", "key", "apikey", "api_key", "api-key", "auth", "authorization", "sas", "pass"})
"""Names of parameters in which servers take a login, beside those that tell it themselves."""


def printable(text: str) -> str:
    """Return the text with unprintable characters escaped, including line ends."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode("ascii") for each in text)


def without_secrets(text: str) -> str:
    """Return the text with what is secret in a URL in it masked: `redis://user:***@host`, `postgresql://host/db?password=***`."""
    if "=" in text or "@" in text:
        return _PARAMETER.sub(_masked, _PASSWORD.sub(r"\1***\2", text))
    return str(text)  # Of a `Secret` with nothing secret in it a plain text, which is shown.


def without_path(url: str) -> str:
    """Return a URL without its path, which may be a secret, as that of a web hook: `https://host:8443/***`."""
    masked = without_secrets(url)
    rest = re.sub(r"^(?:[^/?#]*://)?(?:[^/?#]*@)?[^/?#]*", "", masked)
    return masked if rest in ("", "/") else f"{masked.removesuffix(rest)}/***"


def _masked(found: re.Match[str]) -> str:
    name = found[2].lower()
    return f"{found[1]}***" if name in _WITHIN or is_secret_name(name) else found[0]


def counted(count: int, noun: str) -> str:
    """`1 unit`, `2 units`, `1,000 units`."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def duration_text(milliseconds: int) -> str:
    """Return a span in its two largest units, such as `3 h 12 min`."""
    seconds = max(0, milliseconds) // 1_000
    if seconds < 60:
        return f"{seconds} s"
    if seconds < 3_600:
        return f"{seconds // 60} min {seconds % 60} s"
    if seconds < 86_400:
        return f"{seconds // 3_600} h {seconds % 3_600 // 60} min"
    return f"{seconds // 86_400} d {seconds % 86_400 // 3_600} h"


def find_text(value: bytes) -> str | None:
    """Return the bytes as text; None if the text would not be these exact bytes, or could control a terminal."""
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return None
    return text if all(each.isprintable() or each in "\n\t" for each in text) else None
