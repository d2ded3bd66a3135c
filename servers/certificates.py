"""Makes certificates for TLS on loopback at run time, so that the project contains no secrets."""

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from notification_service.jobs.maven import locked
from servers.server import ProgramMissing

_DAYS = "30"
_NAMES = "subjectAltName=IP:127.0.0.1,DNS:localhost"


@dataclass(frozen=True, slots=True)
class Certificates:
    """PEM files. Clients must trust `authority`; `key` and `certificate` belong to the server, and `both` holds the two."""

    authority: Path
    key: Path
    certificate: Path
    both: Path

    @classmethod
    def make(cls, directory: Path) -> Self:
        """Return the certificates in `directory`; make them if missing. Valid for 127.0.0.1 and localhost, for 30 days.

        Raises:
            ProgramMissing: openssl is not installed.
        """
        made = cls(*(directory / name for name in ("authority.pem", "server.key", "server.pem", "server-both.pem")))
        with locked(directory / "lock"):
            if not made.both.exists():
                made._issue(directory)
        return made

    def _issue(self, directory: Path) -> None:
        authority_key, request, extension = (directory / name for name in ("authority.key", "server.csr", "server.ext"))
        new = ("req", "-newkey", "rsa:2048", "-nodes", "-subj")
        _openssl(*new, "/CN=authority", "-x509", "-days", _DAYS, "-keyout", authority_key, "-out", self.authority)
        _openssl(*new, "/CN=localhost", "-keyout", self.key, "-out", request)
        extension.write_text(_NAMES)
        signer = ("-CA", self.authority, "-CAkey", authority_key, "-CAcreateserial", "-days", _DAYS, "-extfile", extension)
        _openssl("x509", "-req", "-in", request, *signer, "-out", self.certificate)
        draft = self.both.with_suffix(".new")
        draft.touch(mode=0o600)
        draft.write_bytes(self.key.read_bytes() + self.certificate.read_bytes() + self.authority.read_bytes())
        draft.replace(self.both)


def _openssl(*arguments: str | Path) -> None:
    program = shutil.which("openssl")
    if program is None:
        raise ProgramMissing(
            "Certificates need openssl, and there is no openssl on PATH", "On Debian and Ubuntu: apt-get install openssl"
        )
    subprocess.run([program, *map(str, arguments)], capture_output=True, check=True)  # noqa: S603 - all arguments are fixed.
