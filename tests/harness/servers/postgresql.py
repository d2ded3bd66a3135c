"""A PostgreSQL server for one test, where its programs are installed."""

import os
import pwd
import shutil
import subprocess
import tempfile
from pathlib import Path

from harness.waiting import wait_until

from servers.ports import LOOPBACK, pick_port

USER = "resequencer"
_SECONDS = 120


def find_programs() -> Path | None:
    """Return the directory of initdb and postgres: on PATH, or where Debian puts them."""
    found = shutil.which("initdb")
    places = [Path(found).resolve().parent] if found else sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    return next((place for place in places if (place / "postgres").exists()), None)


class PostgreSql:
    """A server on loopback, without passwords, in a directory of its own.

    It runs as a user that is not root, because PostgreSQL refuses to run as root.
    """

    def __init__(self, programs: Path) -> None:
        self._programs = programs
        self._directory = Path(tempfile.mkdtemp(prefix="resequencer-postgresql-"))
        self._owner = _find_owner()
        if self._owner is not None:
            os.chown(self._directory, pwd.getpwnam(self._owner).pw_uid, -1)
        self.port = pick_port()
        self._run("initdb", "--username", USER, "--auth", "trust", "--encoding", "UTF8", "--no-sync", "-D", str(self._data))
        options = [
            "-c",
            f"listen_addresses={LOOPBACK}",
            "-c",
            "unix_socket_directories=",
            "-c",
            "fsync=off",
            "-p",
            str(self.port),
        ]
        with (self._directory / "log").open("wb") as log:
            self._process = subprocess.Popen(
                [self._programs / "postgres", "-D", self._data, *options],
                cwd=self._directory, user=self._owner, stdout=log, stderr=log, stdin=subprocess.DEVNULL,
            )  # fmt: skip
        wait_until(self._is_ready, f"PostgreSQL is ready: {(self._directory / 'log').read_text()}", _SECONDS)

    @property
    def url(self) -> str:
        return f"jdbc:postgresql://{LOOPBACK}:{self.port}/postgres"

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        shutil.rmtree(self._directory, ignore_errors=True)

    @property
    def _data(self) -> Path:
        return self._directory / "data"

    def _is_ready(self) -> bool:
        assert self._process.poll() is None, (self._directory / "log").read_text()
        asked = [self._programs / "pg_isready", "-h", LOOPBACK, "-p", str(self.port), "-U", USER]
        return subprocess.run(asked, capture_output=True, check=False).returncode == 0

    def _run(self, program: str, *arguments: str) -> None:
        command = [self._programs / program, *arguments]
        subprocess.run(command, cwd=self._directory, user=self._owner, check=True, capture_output=True, timeout=_SECONDS)


def _find_owner() -> str | None:
    """Return the user that runs the server; None if this process can run it."""
    if os.getuid() != 0:
        return None
    known = {each.pw_name for each in pwd.getpwall()}
    return "postgres" if "postgres" in known else "nobody"
