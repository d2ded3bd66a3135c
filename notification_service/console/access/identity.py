"""Who makes a request, and what this person or program may do."""

from typing import NamedTuple, Protocol

from starlette.requests import HTTPConnection

from notification_service.console.access.role import Role


class Identity(NamedTuple):
    """`sends_by_itself` is set if the browser adds the login to any request, also to one that another site made it send."""

    name: str
    roles: frozenset[Role]
    sends_by_itself: bool

    def may(self, role: Role) -> bool:
        return role in self.roles or (role is Role.VIEWER and Role.OPERATOR in self.roles)


class Authenticator(Protocol):
    """Finds out who makes a request. `challenge` is the answer's `WWW-Authenticate` for a request without a login."""

    @property
    def challenge(self) -> str | None: ...

    def find_claimed_name(self, connection: HTTPConnection) -> str | None:
        """Return the name that the request claims, if its secret could be guessed; None if guesses are hopeless."""
        ...

    async def find_identity(self, connection: HTTPConnection) -> Identity | None:
        """Return who makes the request, None if it has no valid login. It does not hold the event loop up.

        Raises:
            ResequencerError: It cannot be found out at the moment.
        """
        ...


class NoLogin:
    """`auth = none`: each request comes from this machine, and may do everything."""

    challenge = None

    def find_claimed_name(self, connection: HTTPConnection) -> str | None:
        del connection
        return None

    async def find_identity(self, connection: HTTPConnection) -> Identity | None:
        del connection
        return Identity("local", frozenset(Role), sends_by_itself=True)
