"""The settings of what is served by HTTP: console, metrics and probes."""

from pathlib import Path
from typing import Annotated

import msgspec

from resequencer.keys.configuration_key import Key, Section
from resequencer.keys.list_types import Networks, Urls
from resequencer.keys.value_types import Choice, Choices, Duration, FilePath, SecretText, Switch, Text, Whole
from resequencer.order import OrderKind

HOST = Text(r"[A-Za-z0-9.:_-]{1,255}", "a host name or an address")
PORT = Whole(0, 65_535)
AUTHENTICATIONS = ("none", "basic", "proxy", "bearer")
EDIT = "edit"
"""In `http.approval`: a dead letter that is edited and sent again, beside the kinds of orders."""


class Listener(msgspec.Struct, frozen=True, kw_only=True):
    """An address to listen on; `port` 0 lets the system choose a free one.

    With `is_port_chosen` an operator has set the port, so no other one is taken in its place.
    """

    host: Annotated[str, Key(HOST)]
    port: Annotated[int, Key(PORT)]
    is_port_chosen: bool = False


class ProbesEndpoint(Listener, frozen=True, kw_only=True):
    """Where the supervisor answers `/health/live` and `/health/ready`, without a login."""


class MetricsEndpoint(Listener, frozen=True, kw_only=True):
    """Where the console's process answers `/metrics`, without a login."""


class HttpTls(msgspec.Struct, frozen=True):
    """The certificate chain and its key, both PEM; both or neither."""

    certificate_file: Annotated[Path | None, Key(FilePath("no TLS"))]
    key_file: Annotated[Path | None, Key(FilePath("no TLS"))]


class TrustedProxy(msgspec.Struct, frozen=True):
    """The proxies at `addresses` name the client. With `auth = proxy` they log people in, too, and name them in these headers."""

    addresses: Annotated[tuple[str, ...], Key(Networks())]
    user_header: Annotated[str, Key(Text(r"[A-Za-z0-9-]{1,64}", "the name of an HTTP header"))]
    roles_header: Annotated[str, Key(Text(r"[A-Za-z0-9-]{1,64}", "the name of an HTTP header"))]


class HttpSettings(Listener, frozen=True, kw_only=True):
    """`peers` are the consoles of the group's other machines, which answer to `peers_token`."""

    is_enabled: Annotated[bool, Key(Switch(), "enabled")]
    auth: Annotated[str, Key(Choice(AUTHENTICATIONS))]
    users_file: Annotated[Path, Key(FilePath("<run-directory>/console-users.json"))]
    proxy: Annotated[TrustedProxy, Section("proxy")]
    tls: Annotated[HttpTls, Section("tls")]
    peers: Annotated[tuple[str, ...], Key(Urls(("http", "https")))]
    peers_token: Annotated[str, Key(SecretText())]
    audit_retention_ms: Annotated[int, Key(Duration("1d", "3650d"))]
    approval: Annotated[tuple[str, ...], Key(Choices((*OrderKind, EDIT)))]
    probes: Annotated[ProbesEndpoint, Section("probes")]
    metrics: Annotated[MetricsEndpoint, Section("metrics")]
