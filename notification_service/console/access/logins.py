"""The ways to log in: a password, a token, or a proxy that has done it."""

import asyncio
import base64
import binascii
import hashlib
import hmac
import ipaddress
import secrets
from collections import Counter, OrderedDict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Lock

from starlette.concurrency import run_in_threadpool
from starlette.requests import HTTPConnection

from notification_service.console.access.identity import Identity, Role, is_within
from notification_service.console.access.settings import TrustedProxy
from notification_service.console.access.users_file import User, UsersFile
from resequencer.clock import Clock, Instant
from resequencer.errors import TransientError

_LONGEST_NAME = 256
_REMEMBERED = 1_000
_VALID_MS = 300_000
_HASHED_AT_ONCE = 2
"""Each hash takes a core and 16 MiB for a moment; anyone can ask for as many as they like."""
_MAX_HASHED, _MAX_OF_ONE = 20, 5
"""How many are hashed or wait for it, in all and of one client; each waits for a second at most. Further ones are refused."""


class LoginsBusy(TransientError):
    """Too many passwords are checked at this moment. A login that was right before is not affected."""

    def __init__(self) -> None:
        super().__init__("too many logins are checked at this moment; try again in a second")


class BasicLogin:
    """`auth = basic`: name and password in each request (RFC 7617), from the users' file.

    A password that was right is not hashed again for five minutes, unless the file has changed.
    """

    challenge = 'Basic realm="resequencer", charset="UTF-8"'

    def __init__(self, users: UsersFile, clock: Clock) -> None:
        self._users = users
        self._clock = clock
        self._key = secrets.token_bytes(32)
        self._right: OrderedDict[bytes, Instant] = OrderedDict()
        self._lock = Lock()
        self._pool = ThreadPoolExecutor(_HASHED_AT_ONCE, "login")
        self._hashed = Counter[str]()
        self._unknown_user = User((), secrets.token_hex(16), secrets.token_hex(32))

    def find_claimed_name(self, connection: HTTPConnection) -> str | None:
        claimed = _name_and_password(connection)
        return None if claimed is None else claimed[0]

    async def find_identity(self, connection: HTTPConnection) -> Identity | None:
        claimed = _name_and_password(connection)
        if claimed is None:
            return None
        name, password = claimed
        # A name that is not known takes as long as one that is, so that names cannot be tried out.
        users = await run_in_threadpool(self._users.read)
        user = users.users.get(name, self._unknown_user)
        if not await self._check_password(user, password, connection.state.client.network) or user is self._unknown_user:
            return None
        return Identity(name, frozenset(user.roles), sends_by_itself=True)

    async def _check_password(self, user: User, password: str, network: str) -> bool:
        proof, now = hmac.digest(self._key, f"{user.hash}\0{password}".encode(), hashlib.sha256), self._clock.now()
        with self._lock:
            if 0 <= now - self._right.get(proof, -_VALID_MS) < _VALID_MS:
                return True
        if not await self._hash(user, password, network):
            return False
        with self._lock:
            self._right[proof] = now
            self._right.move_to_end(proof)
            while len(self._right) > _REMEMBERED:
                self._right.popitem(last=False)
        return True

    async def _hash(self, user: User, password: str, network: str) -> bool:
        with self._lock:
            if self._hashed[network] >= _MAX_OF_ONE or self._hashed.total() >= _MAX_HASHED:
                raise LoginsBusy
            self._hashed[network] += 1
        hashing = self._pool.submit(user.has_password, password)

        def release(_: object) -> None:
            with self._lock:
                self._hashed -= Counter((network,))

        hashing.add_done_callback(release)
        return await asyncio.wrap_future(hashing)


class BearerLogin:
    """`auth = bearer`: a token of the users' file in each request (RFC 6750)."""

    challenge = 'Bearer realm="resequencer"'

    def __init__(self, users: UsersFile) -> None:
        self._users = users

    def find_claimed_name(self, connection: HTTPConnection) -> str | None:
        del connection
        return None

    async def find_identity(self, connection: HTTPConnection) -> Identity | None:
        token = _credentials(connection, "bearer")
        found = (await run_in_threadpool(self._users.read)).find_by_token(token) if token else None
        return None if found is None else Identity(found[0], frozenset(found[1].roles), sends_by_itself=False)


class ProxyLogin:
    """`auth = proxy`: a proxy at a trusted address names the user and the roles in headers. Other addresses get nothing."""

    challenge = None

    def __init__(self, proxy: TrustedProxy) -> None:
        self._proxy = proxy
        self._networks = [ipaddress.ip_network(each) for each in proxy.addresses]

    def find_claimed_name(self, connection: HTTPConnection) -> str | None:
        del connection
        return None

    async def find_identity(self, connection: HTTPConnection) -> Identity | None:
        names = connection.headers.getlist(self._proxy.user_header)
        is_trusted = connection.client is not None and is_within(connection.client.host, self._networks)
        if not is_trusted or len(names) != 1 or not names[0].strip() or len(names[0]) > _LONGEST_NAME:
            return None
        roles = _roles(connection.headers.getlist(self._proxy.roles_header))
        return Identity(names[0].strip(), roles, sends_by_itself=True)


def _roles(headers: Sequence[str]) -> frozenset[Role]:
    """The roles that a single header lists. Words that are no role are ignored: the proxy may list those of other systems."""
    roles = {each.strip() for each in headers[0].split(",")} if len(headers) == 1 else set()
    return frozenset(role for role in Role if role.value in roles)


def _name_and_password(connection: HTTPConnection) -> tuple[str, str] | None:
    try:
        login = base64.b64decode(_credentials(connection, "basic") or "", validate=True).decode()
    except (binascii.Error, ValueError):
        return None
    name, separator, password = login.partition(":")
    return (name, password) if separator else None


def _credentials(connection: HTTPConnection, scheme: str) -> str | None:
    given = connection.headers.getlist("authorization")
    if len(given) != 1:
        return None
    named, _, credentials = given[0].partition(" ")
    return credentials.strip() if named.lower() == scheme else None
