"""From the settings to who may use the console."""

from console.access.identity import Authenticator, NoLogin
from console.settings import HttpSettings
from domain.errors import ConfigurationError


def make_authenticator(settings: HttpSettings) -> Authenticator:
    """Return what finds out who makes a request.

    Raises:
        ConfigurationError: The file of users cannot be used.
    """
    if settings.auth == "none":
        return NoLogin()
    raise ConfigurationError("payment-status-notification.http.auth", f"{settings.auth} is not supported yet; use none")
