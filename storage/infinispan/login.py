"""The login to an Infinispan server, by a mechanism that it offers."""

from collections.abc import Generator
from threading import local

import httpx


class Login(httpx.Auth):
    """Uses Basic over TLS, which needs one round trip. Otherwise uses Digest, which hides the password, if the server offers it.

    The first request of a thread that the server refuses tells which mechanisms it offers. Each thread logs in by itself: Digest
    counts the requests, and a server refuses one that another one has overtaken.
    """

    def __init__(self, username: str, password: str) -> None:
        self._username = username
        self._password = password
        self._chosen = local()

    def auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response, None]:
        auth: httpx.Auth | None = getattr(self._chosen, "auth", None)
        if auth is None:
            response = yield request
            if response.status_code != httpx.codes.UNAUTHORIZED:
                return
            auth = self._chosen.auth = self._choose(response, is_hidden=request.url.scheme == "https")
        yield from auth.auth_flow(request)

    def _choose(self, response: httpx.Response, *, is_hidden: bool) -> httpx.Auth:
        offered = {each.partition(" ")[0].lower() for each in response.headers.get_list("www-authenticate")}
        is_basic = "digest" not in offered or (is_hidden and "basic" in offered)
        return (httpx.BasicAuth if is_basic else httpx.DigestAuth)(self._username, self._password)
