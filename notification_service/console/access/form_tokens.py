"""Tokens against forged requests (CSRF): only a page of this console knows one, and each changes something once."""

import hmac
import secrets
from collections import OrderedDict
from collections.abc import Callable
from threading import Lock

from notification_service.console.access.identity import Identity

_VALID_MS = 2 * 3_600_000
_REMEMBERED = 100_000
"""How many used tokens are remembered at most. Each needed a login, and none is valid for longer than two hours."""


class TokenRefused(Exception):
    """The text says why, for the person who sent the form."""


class FormTokens:
    """Makes and takes tokens. They are bound to a user and to this process. May be used from several threads.

    `passed` returns the milliseconds since the machine was started: by a wall clock, which jumps, a form could be sent twice.
    """

    def __init__(self, passed: Callable[[], int]) -> None:
        self._passed = passed
        self._secret = secrets.token_bytes(32)
        self._used: OrderedDict[str, int] = OrderedDict()
        self._lock = Lock()

    def make(self, identity: Identity) -> str:
        """Return a new token for a form of this user, or for one call of the API."""
        said = f"{secrets.token_urlsafe(12)}.{self._passed() + _VALID_MS}"
        return f"{said}.{self._sign(identity, said)}"

    def take(self, identity: Identity, token: str) -> None:
        """Use the token up.

        Raises:
            TokenRefused: It is not this user's, it is too old, or it was used before.
        """
        said, _, signature = token.rpartition(".")
        nonce, _, until = said.partition(".")
        if not hmac.compare_digest(signature.encode(), self._sign(identity, said).encode()):
            raise TokenRefused("the form's token is missing or is not yours; load the page again")
        now = self._passed()
        if int(until) < now:
            raise TokenRefused("the form is more than two hours old; load the page again")
        with self._lock:
            if nonce in self._used:
                raise TokenRefused("this form was sent before; load the page again to see what it did")
            self._used[nonce] = int(until)
            while self._used and (len(self._used) > _REMEMBERED or next(iter(self._used.values())) < now):
                self._used.popitem(last=False)

    def _sign(self, identity: Identity, said: str) -> str:
        return hmac.digest(self._secret, f"{identity.name}\0{said}".encode(), "sha256").hex()
