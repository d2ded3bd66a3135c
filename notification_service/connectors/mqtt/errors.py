"""Translates reason codes of MQTT 5 and errors of its client into errors of the transport; the only place that does."""

from typing import Any

from guardian.ports import TransportRefused, TransportUnavailable, TransportWithheld

FIRST_FAILURE = 0x80
"""Reason codes from here on are failures."""

NOT_DELIVERED = 0x10
"""The reason code of a message that was taken, but that has no subscriber: the broker keeps it for none."""

_NOT_AUTHORIZED = 0x87
_TAKEN_OVER = 0x8E
_LOGIN_REFUSED = frozenset({0x86, _NOT_AUTHORIZED, 0x8A, 0x8C})
_REFUSED = {
    0x84: "The broker must speak MQTT 5",
    0x85: "Set another mqtt.client-id",
    0x90: "Name another topic",
    0x95: "Raise the broker's limit of a packet",
    0x99: "Let the broker take any payload",
    0x9A: "Let the broker take messages that are not retained",
    0x9B: "Lower mqtt.qos",
}


def refused_connection(url: str, reason: Any) -> TransportRefused | TransportUnavailable:
    """Translate the reason code with which a broker refused a connection."""
    if reason.value in _LOGIN_REFUSED:
        return TransportWithheld(url, f"the broker refuses the login ({reason}). Check mqtt.user and mqtt.password")
    if reason.value in _REFUSED:
        return TransportRefused(url, f"the broker refuses the connection ({reason}). {_REFUSED[reason.value]}")
    return TransportUnavailable(f"{url}: the broker refuses the connection ({reason})")


def refused_topic(topic: str, reason: Any) -> TransportRefused | TransportUnavailable:
    """Translate the reason code with which a broker refused a message or a subscription."""
    what = f"topic {topic}"
    if reason.value == _NOT_AUTHORIZED:
        return TransportWithheld(what, f"the broker refuses it ({reason}). Give the user the right to it")
    if reason.value in _REFUSED:
        return TransportRefused(what, f"the broker refuses it ({reason}). {_REFUSED[reason.value]}")
    return TransportUnavailable(f"{what}: the broker refuses it ({reason})")


def lost(url: str, what: object) -> TransportUnavailable:
    """Return the error for a connection that is lost or could not be made. `what` is the client's error or reason code."""
    return TransportUnavailable(f"{url}: {' '.join(str(what).split())[:500] or type(what).__name__}")


class SessionTakenOver(TransportUnavailable):
    """Another connection with the same client id has taken the session over. Taking it back would go on for ever."""


def disconnected(url: str, reason: Any) -> TransportUnavailable:
    """Translate the reason code with which a connection has ended."""
    if reason.value == _TAKEN_OVER:
        return SessionTakenOver(f"{url}: another connection with this client id has taken the session over")
    return lost(url, f"the connection is lost ({reason})")
