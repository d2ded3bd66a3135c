"""Writes the configuration files of an Infinispan server."""

from collections.abc import Mapping
from pathlib import Path

from servers.ports import LOOPBACK

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
