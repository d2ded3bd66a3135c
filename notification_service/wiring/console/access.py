"""From the settings to who may use the console."""

import ssl

from notification_service.configuration.schema import path_of
from notification_service.console.access.identity import Authenticator, NoLogin
from notification_service.console.access.logins import BasicLogin, BearerLogin, ProxyLogin
from notification_service.console.access.settings import HttpSettings, HttpTls
from notification_service.console.access.users_file import UsersFile
from notification_service.supervision.system_clock import SystemClock
from resequencer.errors import ConfigurationError


def make_authenticator(settings: HttpSettings) -> Authenticator:
    """Return what finds out who makes a request.

    Raises:
        ConfigurationError: The users' file has no user who could log in.
        UsersFileUnusable: The users' file cannot be read.
    """
    if settings.auth == "none":
        return NoLogin()
    if settings.auth == "proxy":
        return ProxyLogin(settings.proxy)
    file = UsersFile(settings.users_file)
    users = file.read()
    if not (users.users if settings.auth == "basic" else users.tokens):
        what, command = ("user", "add-user") if settings.auth == "basic" else ("token", "add-token")
        problem = f"is {settings.auth}, and {settings.users_file} has no {what}: run `resequencer console {command} NAME`"
        raise ConfigurationError(path_of(HttpSettings, "auth"), problem)
    return BasicLogin(file, SystemClock()) if settings.auth == "basic" else BearerLogin(file)


def check_tls(tls: HttpTls) -> None:
    """Raises ConfigurationError if the certificate or its key cannot be used."""
    if tls.certificate_file is None:
        return
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(tls.certificate_file, tls.key_file)
    except (OSError, ssl.SSLError) as error:
        problem = f"{tls.certificate_file} and {tls.key_file} cannot be used: {error}"
        raise ConfigurationError(path_of(HttpTls, "certificate_file"), problem) from error
