"""Finds the client of AMQP 1.0, which only a service with JMS or XMS needs."""

from typing import TYPE_CHECKING

from resequencer.errors import ConfigurationError

if TYPE_CHECKING:
    from notification_service.connectors.jms.connection import JmsConnection
    from notification_service.connectors.jms.settings import BrokerSettings


def require_client() -> None:
    """Check that the client is installed.

    Raises:
        ConfigurationError: It is not; the text names the remedy.
    """
    try:
        import proton  # noqa: F401 - A service without them runs without it.
    except ImportError as error:
        problem = f"is not installed ({error}); install it by `make setup-jms`, or pip install '.[jms]'"
        raise ConfigurationError("python-qpid-proton, the client of JMS and XMS brokers,", problem) from error


def connect(settings: "BrokerSettings") -> "JmsConnection":
    """Return a new connection, which is open.

    Raises:
        ConfigurationError: The client is not installed.
        TransportUnavailable: The broker does not answer.
        TransportWithheld: It refuses the login.
    """
    require_client()
    from notification_service.connectors.jms.connection import JmsConnection

    return JmsConnection(settings)
