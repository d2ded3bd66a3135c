"""The properties of a broker that is its own controller."""

from collections.abc import Mapping
from pathlib import Path

from servers.certificates import Certificates
from servers.ports import LOOPBACK

SCRAM = "SCRAM-SHA-512"

_ALONE = {
    "process.roles": "broker,controller",
    "node.id": "1",
    # One replica each, because there is one broker.
    "default.replication.factor": "1",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "4",
    "share.coordinator.state.topic.num.partitions": "4",
}

_FOR_TRYING = {
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    # A mistyped topic must fail in a client, as on a cluster with access control.
    "auto.create.topics.enable": "false",
    # Records never expire. The same setting in hours would become a negative time.
    "log.retention.ms": "-1",
    # A paused broker has no other to hand over to, and would drop the ends of transactions (servers/kafka/stale_registration.py).
    "broker.session.timeout.ms": "30000",
    "broker.heartbeat.interval.ms": "250",
}

_LOGIN = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
_AUTHORIZED = {
    "sasl.enabled.mechanisms": SCRAM,
    "listener.name.sasl.scram-sha-512.sasl.jaas.config": _LOGIN,
    "listener.name.sasl_tls.scram-sha-512.sasl.jaas.config": _LOGIN,
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    # Connections without a name: the broker itself, its controller, and administrators.
    "super.users": "User:ANONYMOUS",
}


def kafka_properties(
    ports: Mapping[str, int], data: Path, certificates: Certificates | None, *, has_users: bool
) -> dict[str, str]:
    """Return the properties. `certificates` adds the listener TLS, `has_users` SASL and authorization; both add SASL_TLS."""
    listeners = {"PLAINTEXT": (ports["kafka"], "PLAINTEXT")}
    listeners |= {"TLS": (ports["tls"], "SSL")} if certificates else {}
    listeners |= {"SASL": (ports["sasl"], "SASL_PLAINTEXT")} if has_users else {}
    listeners |= {"SASL_TLS": (ports["sasl_tls"], "SASL_SSL")} if certificates and has_users else {}
    controller = {"CONTROLLER": (ports["controller"], "PLAINTEXT")}
    return {
        **_ALONE,
        **_FOR_TRYING,
        "log.dirs": str(data),
        "controller.quorum.voters": f"1@{LOOPBACK}:{ports['controller']}",
        "controller.listener.names": "CONTROLLER",
        "inter.broker.listener.name": "PLAINTEXT",
        "listeners": _addresses(listeners | controller),
        "advertised.listeners": _addresses(listeners),
        "listener.security.protocol.map": ",".join(f"{name}:{kind}" for name, (_, kind) in (listeners | controller).items()),
        **(_tls(certificates) if certificates else {}),
        **(_AUTHORIZED if has_users else {}),
    }


def _addresses(listeners: Mapping[str, tuple[int, str]]) -> str:
    return ",".join(f"{name}://{LOOPBACK}:{port}" for name, (port, _) in listeners.items())


def _tls(certificates: Certificates) -> dict[str, str]:
    return {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(certificates.both),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(certificates.authority),
    }
