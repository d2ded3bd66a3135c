"""The login to an Infinispan server, by a mechanism that it offers."""

from collections.abc import Generator

import httpx


class Login(httpx.Auth):
    """Uses Basic over TLS, which needs one round trip. Otherwise uses Digest, which hides the password, if the server offers it.

    The first request that the server refuses tells which mechanisms it offers.
    """

    def __init__(self, username: str, password: str) -> None:
        self._basic = httpx.BasicAuth(username, password)
        self._digest = httpx.DigestAuth(username, password)
        self._chosen: httpx.Auth | None = None

    def auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response, None]:
        if self._chosen is None:
            response = yield request
            if response.status_code != httpx.codes.UNAUTHORIZED:
                return
            self._chosen = self._choose(response, is_hidden=request.url.scheme == "https")
        yield from self._chosen.auth_flow(request)

    def _choose(self, response: httpx.Response, *, is_hidden: bool) -> httpx.Auth:
        offered = {each.partition(" ")[0].lower() for each in response.headers.get_list("www-authenticate")}
        return self._basic if "digest" not in offered or (is_hidden and "basic" in offered) else self._digest
