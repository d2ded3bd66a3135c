"""A mosquitto broker, which speaks MQTT 5."""

import os
import pwd
import socket
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from servers.programs import find_program
from servers.server import DATA, LOOPBACK, Server

_REMEDY = "Install mosquitto 2 or newer. On Debian and Ubuntu: apt-get install --no-install-recommends mosquitto"
_PLACES = "/usr/sbin"
"""Where the package puts it, which only root has on PATH."""


def find_mosquitto() -> Path:
    """Return `mosquitto`, as `find_program` does."""
    return find_program("mosquitto", "mosquitto", _REMEDY, _PLACES)


_GREETING = bytes.fromhex("1010 0004 4d515454 05 02 000a 03 21 0014 0000")
"""A CONNECT of MQTT 5 with a clean start, a keep-alive of 10 s, a receive maximum of 20, and no client id."""

_ANSWER = b"\x20"
_ANSWER_SECONDS = 2


@dataclass(frozen=True, slots=True)
class MosquittoSettings:
    """The setup of a broker. With `users` (passwords by name) only they have access, but not to the topics `closed`.

    `options` are further lines of its configuration.
    """

    users: Mapping[str, str] = field(default_factory=dict)
    closed: Sequence[str] = ()
    options: Sequence[str] = ()


class MosquittoServer(Server):
    """A `Server`. It keeps messages and sessions in memory, and saves them about once a second and when it is stopped.

    So a kill loses what it acknowledged since: that is so with every mosquitto, and no setting of it syncs each message.
    """

    name: ClassVar[str] = "mosquitto"
    port_names: ClassVar[Sequence[str]] = ("mosquitto",)

    def __init__(
        self, directory: Path, settings: MosquittoSettings | None = None, wanted: Mapping[str, int] | None = None
    ) -> None:
        super().__init__(directory, wanted)
        self.settings = settings or MosquittoSettings()

    @property
    def url(self) -> str:
        return f"mqtt://{LOOPBACK}:{self.ports['mosquitto']}"

    @property
    def mqtt_url(self) -> str:
        """The same, by the name that other brokers with MQTT have for it."""
        return self.url

    def is_ready(self) -> bool:
        """Return whether the broker answers the greeting of MQTT, be it by a refusal."""
        try:
            with closing(socket.create_connection((LOOPBACK, self.ports["mosquitto"]), _ANSWER_SECONDS)) as connection:
                connection.settimeout(_ANSWER_SECONDS)
                connection.sendall(_GREETING)
                return connection.recv(1) == _ANSWER
        except OSError:
            return False

    def _prepared(self) -> tuple[Sequence[str], Mapping[str, str]]:
        program, data = find_mosquitto(), self.directory / DATA
        data.mkdir(exist_ok=True)
        path = self.directory / "mosquitto.conf"
        path.write_text("".join(f"{line}\n" for line in self._configuration(program, data)))
        return [str(program), "-c", str(path)], os.environ

    def _configuration(self, program: Path, data: Path) -> list[str]:
        # Without its user, the broker of root becomes another one, which cannot write its files. By default a session keeps
        # a thousand messages, and further ones are dropped.
        lines = [f"user {pwd.getpwuid(os.geteuid()).pw_name}", f"listener {self.ports['mosquitto']} {LOOPBACK}"]
        lines += ["persistence true", f"persistence_location {data}/", "autosave_interval 1", "max_queued_messages 0"]
        lines += ["log_dest stderr", "log_timestamp_format %Y-%m-%dT%H:%M:%S", *self._access(program), *self.settings.options]
        return lines

    def _access(self, program: Path) -> list[str]:
        settings = self.settings
        if not settings.users:
            return ["allow_anonymous true"]
        passwords, rights = self.directory / "passwords", self.directory / "rights"
        passwords.unlink(missing_ok=True)
        passwords.touch(mode=0o600)
        for user, password in settings.users.items():
            # The first rule that fits a topic counts.
            command = [self._passwd(program), "-b", str(passwords), user, password]
            subprocess.run(command, check=True, capture_output=True)  # noqa: S603 - all ours.
        everything = [line for user in settings.users for line in (f"user {user}", *self._rules())]
        rights.touch(mode=0o600)
        rights.write_text("".join(f"{line}\n" for line in everything))
        return ["allow_anonymous false", f"password_file {passwords}", f"acl_file {rights}"]

    def _rules(self) -> list[str]:
        return [*(f"topic deny {each}" for each in self.settings.closed), "topic readwrite #"]

    @staticmethod
    def _passwd(program: Path) -> str:
        beside, installed = program.with_name("mosquitto_passwd"), Path("/usr/bin/mosquitto_passwd")
        return str(beside if beside.exists() else installed)
