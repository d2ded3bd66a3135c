"""The translation of an Infinispan server's error answers and time-outs."""

import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

import httpx

from resequencer.storage_port import StorageRefused, StorageUnavailable, StorageWithheld

_REFUSALS: dict[int, str] = {
    httpx.codes.UNAUTHORIZED: "it refuses the login; set storage.infinispan.username and password to a user that it knows",
    httpx.codes.FORBIDDEN: "the user may not do this; give it the role application (deployer, to let it make the cache)",
    httpx.codes.REQUEST_ENTITY_TOO_LARGE: "it accepts no bodies of this size; allow 10 MB at its REST endpoint "
    "(max-content-length) and at any proxy before it",
    httpx.codes.NOT_FOUND: "it is not a REST endpoint of Infinispan, version 2; set storage.infinispan.url to one",
    httpx.codes.METHOD_NOT_ALLOWED: "it is not a REST endpoint of Infinispan, version 2; set storage.infinispan.url to one",
}

_WITHHELD = (httpx.codes.UNAUTHORIZED, httpx.codes.FORBIDDEN)


@contextmanager
def translated(server: str, request: str) -> Iterator[None]:
    """Send a request to `server`, and translate its errors. `request` describes the request.

    Raises:
        StorageUnavailable: The server did not answer in time.
        StorageRefused: The server's certificate is not trusted.
    """
    try:
        yield
    except httpx.TransportError as error:
        if _is_untrusted(error):
            problem = f"its certificate is not trusted ({error}); set storage.infinispan.tls.ca-file to its authority"
            raise StorageRefused(server, problem) from error
        raise StorageUnavailable(f"{server}: {request}: {str(error) or type(error).__name__}") from error
    except httpx.HTTPError as error:
        raise StorageUnavailable(f"{server}: {request}: {str(error) or type(error).__name__}") from error


def refuse(server: str, response: httpx.Response) -> NoReturn:
    """Raise the error for an unexpected answer."""
    said = f"{response.status_code} {_first_line(response)}".strip()
    request = f"{response.request.method} {response.request.url.path}"
    if (problem := _REFUSALS.get(response.status_code)) is not None:
        kind = StorageWithheld if response.status_code in _WITHHELD else StorageRefused
        raise kind(server, f"{problem} ({request}: {said})")
    if response.is_server_error or response.status_code in (httpx.codes.REQUEST_TIMEOUT, httpx.codes.TOO_MANY_REQUESTS):
        raise StorageUnavailable(f"{server}: {request}: {said}")
    raise StorageRefused(server, f"it answers {said} to {request}; check the url, and see the server's log for the reason")


def _is_untrusted(error: BaseException | None) -> bool:
    while error is not None:
        if isinstance(error, ssl.SSLCertVerificationError):
            return True
        error = error.__cause__ or error.__context__
    return False


def _first_line(response: httpx.Response) -> str:
    return response.text.partition("\n")[0][:200]
