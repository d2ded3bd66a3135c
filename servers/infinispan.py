"""An Infinispan server of one node, used over REST."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import httpx

from servers.programs import QUICK_JAVA, find_java, get_jars, write_log_configuration
from servers.server import LOOPBACK, Server

# Without the port-offset the server hangs at its start.
_SERVER = """<?xml version="1.0" encoding="UTF-8"?>
<infinispan xmlns="urn:infinispan:config:15.2">
  <cache-container name="default"/>
  <server xmlns="urn:infinispan:server:15.2">
    <interfaces>
      <interface name="public"><inet-address value="{host}"/></interface>
    </interfaces>
    <socket-bindings default-interface="public" port-offset="0">
      <socket-binding name="default" port="{port}"/>
    </socket-bindings>{security}
    <endpoints>
      <endpoint socket-binding="default"{realm}>
        <rest-connector>{authentication}</rest-connector>
      </endpoint>
    </endpoints>
  </server>
</infinispan>
"""

_SECURITY = """
    <security>
      <security-realms>
        <security-realm name="default">
          <properties-realm groups-attribute="Roles">
            <user-properties path="users.properties" plain-text="true"/>
            <group-properties path="groups.properties"/>
          </properties-realm>
        </security-realm>
      </security-realms>
    </security>"""

_AUTHENTICATION = '<authentication mechanisms="BASIC DIGEST"/>'


def infinispan_xml(port: int, *, has_users: bool) -> str:
    """Return the server's configuration. Without `has_users`, access is unrestricted."""
    if not has_users:
        return _SERVER.format(host=LOOPBACK, port=port, security="", realm="", authentication="")
    realm = ' security-realm="default"'
    return _SERVER.format(host=LOOPBACK, port=port, security=_SECURITY, realm=realm, authentication=_AUTHENTICATION)


def write_users(directory: Path, users: Mapping[str, str]) -> None:
    """Write the users to the two files that the security realm reads."""
    passwords = "".join(f"{name}={password}\n" for name, password in users.items())
    (directory / "users.properties").write_text(f"#$REALM_NAME=default$\n{passwords}")
    (directory / "groups.properties").write_text("".join(f"{name}=admin\n" for name in users))


_ANSWER_SECONDS, _CLIENT_SECONDS = 5, 60


@dataclass(frozen=True, slots=True)
class InfinispanSettings:
    """The setup of a server. With `users` (passwords by name) only they have access, by BASIC or DIGEST authentication."""

    users: Mapping[str, str] | None = None
    java_options: Sequence[str] = QUICK_JAVA


class InfinispanServer(Server):
    """A `Server`. It starts without caches. Caches created over REST and counters survive a restart."""

    name: ClassVar[str] = "infinispan"
    port_names: ClassVar[Sequence[str]] = ("infinispan",)

    def __init__(
        self, directory: Path, settings: InfinispanSettings | None = None, wanted: Mapping[str, int] | None = None
    ) -> None:
        super().__init__(directory, wanted)
        self.settings = settings or InfinispanSettings()

    @property
    def url(self) -> str:
        return f"http://{LOOPBACK}:{self.ports['infinispan']}"

    def client(self, seconds: float = _CLIENT_SECONDS) -> httpx.Client:
        """Return a new client that waits so long, logged in as the first user if there are users. The caller closes it."""
        user = next(iter((self.settings.users or {}).items()), None)
        return httpx.Client(
            base_url=self.url, auth=user, headers={"Accept-Encoding": "identity"}, timeout=seconds, trust_env=False
        )

    def create_cache(self, name: str, definition: Mapping[str, object]) -> None:
        """Create a cache from the server's JSON, such as `{"local-cache": {…}}`; fails if the name is used otherwise."""
        with self.client() as client:
            client.post(f"/rest/v2/caches/{name}", json=definition).raise_for_status()

    def is_ready(self) -> bool:
        """Return whether the server reports that it is healthy; the status code alone does not show it."""
        try:
            with self.client(_ANSWER_SECONDS) as client:
                return client.get("/rest/v2/container/health/status").text == "HEALTHY"
        except httpx.HTTPError:
            return False

    def _prepared(self) -> tuple[Sequence[str], Mapping[str, str]]:
        root = self.directory / "server"
        for name in ("conf", "lib", "data", "log"):
            (root / name).mkdir(parents=True, exist_ok=True)
        users = self.settings.users
        (root / "conf" / "infinispan.xml").write_text(infinispan_xml(self.ports["infinispan"], has_users=users is not None))
        write_users(root / "conf", users or {})
        log = write_log_configuration(root / "conf")
        java = [str(find_java()), "-cp", f"{get_jars('infinispan')}/*", *self.settings.java_options]
        places = [f"-Dinfinispan.server.home.path={self.directory}", f"-Dinfinispan.server.root.path={root}"]
        arguments = ["-s", str(root), "-c", "infinispan.xml", "-l", str(log), "-p", str(self.ports["infinispan"])]
        return [*java, *places, "org.infinispan.server.Bootstrap", *arguments], os.environ
