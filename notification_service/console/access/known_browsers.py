"""Marks of browsers in which a user has logged in, so that wrong logins elsewhere do not lock the user out there.

After the device cookies of OWASP ("Slow Down Online Guessing Attacks with Device Cookies"): a mark is no login.
"""

import hmac
import secrets

from starlette.requests import HTTPConnection

COOKIE = "resequencer-browser"
_VALID_SECONDS = 90 * 86_400


class KnownBrowsers:
    """Makes marks and finds them again. They are bound to a user and to this process; nothing is remembered."""

    def __init__(self) -> None:
        self._secret = secrets.token_bytes(32)

    def find(self, connection: HTTPConnection, name: str) -> str | None:
        """Return what tells this browser of this user from others; None if the user has not logged in there."""
        said = connection.cookies.get(COOKIE, "")
        nonce, _, signature = said.partition(".")
        return nonce if hmac.compare_digest(signature.encode(), self._sign(name, nonce).encode()) else None

    def make(self, name: str, *, is_secure: bool) -> str:
        """Return a `Set-Cookie` for a browser in which this user has logged in."""
        nonce = secrets.token_urlsafe(12)
        safe = "; Secure" if is_secure else ""
        return f"{COOKIE}={nonce}.{self._sign(name, nonce)}; Max-Age={_VALID_SECONDS}; Path=/; HttpOnly; SameSite=Strict{safe}"

    def _sign(self, name: str, nonce: str) -> str:
        return hmac.digest(self._secret, f"{name}\0{nonce}".encode(), "sha256").hex()
