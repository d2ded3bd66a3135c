"""The file of users and tokens: hashes only, and the roles of each."""

import hashlib
import hmac
import os
import secrets
from collections.abc import Mapping
from pathlib import Path

import msgspec

from notification_service.console.access.identity import Role
from resequencer.errors import ResequencerError
from storage.private_file import replace_durably

VERSION = 1
_COST = {"n": 2**14, "r": 8, "p": 1}
"""About 50 ms and 16 MiB for each check (RFC 7914; OWASP's password storage recommendations name these as a minimum)."""

_TOKEN_BYTES = 32


class UsersFileUnusable(ResequencerError):
    """The file cannot be read or written; the text says what to do."""

    def __init__(self, file: Path, problem: str) -> None:
        super().__init__(f"{file}: {problem}")


class User(msgspec.Struct, frozen=True):
    """`salt` and `hash` are hex. A password is hashed by scrypt. A token is random: SHA-256 is enough, and its salt is empty."""

    roles: tuple[Role, ...]
    salt: str
    hash: str

    def has_password(self, password: str) -> bool:
        return hmac.compare_digest(_scrypt(password, bytes.fromhex(self.salt)), bytes.fromhex(self.hash))


class Users(msgspec.Struct, frozen=True):
    """The people by name, and the programs' tokens by name."""

    version: int = VERSION
    users: Mapping[str, User] = {}
    tokens: Mapping[str, User] = {}

    def find_by_token(self, token: str) -> tuple[str, User] | None:
        """Return the name and roles for a token, None if it is not known."""
        digest = _token_hash(token)
        return next(((name, each) for name, each in self.tokens.items() if hmac.compare_digest(each.hash, digest)), None)


class UsersFile:
    """Reads the file when it has changed. Written by one command at a time, replaced whole, readable by its owner only."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._known: tuple[tuple[int, int], Users] | None = None

    def read(self) -> Users:
        """Return what the file says now; no users if there is no file.

        Raises:
            UsersFileUnusable: It cannot be read, is damaged, or of a newer version.
        """
        try:
            stat = self._file.stat()
            stamp = (stat.st_mtime_ns, stat.st_ino)
            if self._known is None or self._known[0] != stamp:
                self._known = (stamp, self._decoded(self._file.read_bytes()))
        except FileNotFoundError:
            return Users()
        except OSError as error:
            raise UsersFileUnusable(self._file, f"cannot be read: {error.strerror}") from error
        return self._known[1]

    def set_password(self, name: str, password: str, roles: tuple[Role, ...]) -> None:
        salt = secrets.token_bytes(16)
        users = self.read()
        user = User(roles, salt.hex(), _scrypt(password, salt).hex())
        self._write(msgspec.structs.replace(users, users={**users.users, name: user}))

    def make_token(self, name: str, roles: tuple[Role, ...]) -> str:
        """Return a new token. It is not kept, only its hash, and it replaces an earlier token of this name."""
        token, users = secrets.token_urlsafe(_TOKEN_BYTES), self.read()
        user = User(roles, "", _token_hash(token))
        self._write(msgspec.structs.replace(users, tokens={**users.tokens, name: user}))
        return token

    def remove(self, name: str) -> bool:
        """Remove the user or token of this name. Return whether there was one."""
        users = self.read()
        people, tokens = ({each: user for each, user in some.items() if each != name} for some in (users.users, users.tokens))
        if len(people) + len(tokens) == len(users.users) + len(users.tokens):
            return False
        self._write(msgspec.structs.replace(users, users=people, tokens=tokens))
        return True

    def _decoded(self, content: bytes) -> Users:
        try:
            users = msgspec.json.decode(content, type=Users)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            problem = f"is damaged ({error}); restore it, or remove it and add the users again"
            raise UsersFileUnusable(self._file, problem) from error
        if users.version > VERSION:
            raise UsersFileUnusable(self._file, f"has version {users.version}, and this version of the service reads {VERSION}")
        return users

    def _write(self, users: Users) -> None:
        try:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            content = msgspec.json.format(msgspec.json.encode(users), indent=2) + b"\n"
            replace_durably(self._file, content, f"{os.getpid()}.new")
        except OSError as error:
            raise UsersFileUnusable(self._file, f"cannot be written: {error.strerror}") from error


def _scrypt(password: str, salt: bytes) -> bytes:
    return hashlib.scrypt(password.encode(), salt=salt, **_COST, dklen=32)


def _token_hash(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()
