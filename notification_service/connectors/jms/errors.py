"""Translates conditions of AMQP 1.0 and errors of its client into errors of the transport; the only place that does."""

from typing import Any

from guardian.ports import TransportRefused, TransportUnavailable, TransportWithheld
from resequencer.printable import without_secrets

LOGIN = "Check user and password in the section of this broker"
_REMEDIES = {
    "amqp:not-found": (TransportWithheld, "Create the queue"),
    "amqp:unauthorized-access": (TransportWithheld, "Give the user the rights to consume from it and to send to it"),
    "amqp:invalid-field": (TransportRefused, "Correct the selector: it has the syntax of JMS"),
    "amqp:not-allowed": (TransportRefused, "Let the broker allow it"),
    "amqp:not-implemented": (TransportRefused, "The broker must know AMQP 1.0 with selectors and transactions"),
}
_LOGIN_REFUSED = ("Authentication failed", "amqp:unauthorized-access")

TOO_LARGE = "amqp:link:message-size-exceeded"
"""The condition of a message that is larger than the broker takes."""


def to_transport_error(what: str, condition: Any) -> TransportRefused | TransportUnavailable:
    """Translate the condition with which a broker refused or closed a link, or refused a message; None if it gave none."""
    if condition is None:
        return TransportUnavailable(f"{what}: the broker closed it without a reason")
    name, said = str(condition.name), _text(f"{condition.name} {condition.description or ''}")
    if name in _REMEDIES:
        kind, remedy = _REMEDIES[name]
        return kind(what, f"{said}. {remedy}")
    return TransportUnavailable(f"{what}: {said}")


def lost(url: str, error: BaseException) -> TransportUnavailable | TransportWithheld:
    """Translate what the client raised. Whatever it is, the connection is lost."""
    said = without_secrets(_text(str(error))) or type(error).__name__
    if any(each in said for each in _LOGIN_REFUSED):
        return TransportWithheld(url, f"the broker refuses the login ({said}). {LOGIN}")
    return TransportUnavailable(f"{url}: {said}")


def _text(said: str) -> str:
    return " ".join(said.split())[:500]
