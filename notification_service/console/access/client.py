"""Which machine makes a request: the one that connects, or the one for which a trusted proxy connects."""

import ipaddress
from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

from starlette.requests import HTTPConnection

Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network


class Client(NamedTuple):
    """The address of the machine that asks, and that of the proxy that connects for it, if one does."""

    address: str
    proxy: str | None = None

    @property
    def network(self) -> str:
        """What limits count by: with IPv6 one client has 2**64 addresses, so it is the /64 (RFC 6177)."""
        try:
            found = ipaddress.IPv6Address(self.address.partition("%")[0])
        except ValueError:
            return self.address
        return str(found.ipv4_mapped or ipaddress.ip_network((int(found) >> 64 << 64, 64)))


def find_client(connection: HTTPConnection, trusted: Sequence[Network]) -> Client:
    """Return who makes the request. What another address than a trusted proxy's says in `X-Forwarded-For` does not count.

    Each proxy appends the address that connected to it. So the last one that is no trusted proxy is the client; what stands
    before it may be an invention of the client.
    """
    nearest = connection.client.host if connection.client else ""
    if not is_within(nearest, trusted):
        return Client(nearest)
    for said in reversed(",".join(connection.headers.getlist("x-forwarded-for")).split(",")):
        address = _address(said)
        if address is None:
            return Client(nearest)
        if not is_within(address, trusted):
            return Client(address, nearest)
    return Client(nearest)


def is_within(address: str, networks: Sequence[Network]) -> bool:
    """Return whether the text is an address in one of the networks."""
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return False
    return any(found in each for each in networks)


def _address(said: str) -> str | None:
    """Return the address in its canonical form, so that one client has one name; None if the text has none."""
    try:
        return str(ipaddress.ip_address(said.strip().removeprefix("[").removesuffix("]")))
    except ValueError:
        return None
