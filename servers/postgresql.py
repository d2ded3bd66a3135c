"""A PostgreSQL server."""

import os
import pwd
import shutil
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar
from urllib.parse import quote
from uuid import uuid4

from servers.programs import find_program
from servers.server import DATA, LOOPBACK, Server

_REMEDY = (
    "Install PostgreSQL 14 or newer, so that initdb is on PATH. "
    "On Debian and Ubuntu: apt-get install --no-install-recommends postgresql"
)
_PLACES = "/usr/lib/postgresql/*/bin"
_CLUSTERS = Path("/etc/postgresql-common/createcluster.conf")


def find_postgresql() -> Path:
    """Return the directory of `initdb`, `postgres` and `pg_isready`, as `find_program` does."""
    # Debian puts only commands of clients on PATH. A link on PATH leads to the directory that has the others, too.
    return find_program("initdb", "postgresql", _REMEDY, _PLACES, _create_no_cluster).resolve().parent


def _create_no_cluster() -> None:
    """Make the package create no cluster: it would be started at once, and at each boot, on the usual port."""
    _CLUSTERS.parent.mkdir(parents=True, exist_ok=True)
    with _CLUSTERS.open("a") as file:
        file.write("create_main_cluster = false\n")


ELSEWHERE = Path("/var/lib/resequencer-servers")
"""The directory of all data that are not in the directory of their server."""

_PACKAGE_USER, _ANY_USER = "postgres", "nobody"


@dataclass(frozen=True, slots=True)
class Account:
    """A user and group that root takes for the server."""

    user: int
    group: int

    def prefix(self) -> Sequence[str]:
        """Return the words before a command that has to run under this account.

        They replace themselves by the command, so that its process id is that of the process that was started. The directory
        is `/`, because the programs leave their working directory for a moment and must be able to return to it.
        """
        identity = (f"--reuid={self.user}", f"--regid={self.group}", "--clear-groups")
        return ("/usr/bin/env", "--chdir=/", "setpriv", *identity, "--")


def find_account() -> Account | None:
    """Return the account for the server; None if this process is not root, and can run the server itself."""
    if os.geteuid() != 0:
        return None
    known = {each.pw_name: each for each in pwd.getpwall()}
    taken = known.get(_PACKAGE_USER) or known[_ANY_USER]
    return Account(taken.pw_uid, taken.pw_gid)


def make_place(link: Path, account: Account | None) -> Path:
    """Return the directory for the data, which exists, is empty at first, and belongs to the account.

    Without an account this is `link` itself. With one, `link` is a symbolic link to a new directory in `ELSEWHERE`: the account
    often may not enter the directory of the server, which lies below root's home or in a temporary directory of root alone.
    """
    if not link.exists():
        link.unlink(missing_ok=True)  # It led to a directory that is gone.
        if account is None:
            link.mkdir(mode=0o700)
        else:
            ELSEWHERE.mkdir(parents=True, exist_ok=True)
            ELSEWHERE.chmod(0o755)  # Whatever root's umask is, the account may enter it.
            place = ELSEWHERE / uuid4().hex
            place.mkdir(mode=0o700)
            os.chown(place, account.user, account.group)
            link.symlink_to(place)
    return link.resolve()


USER = DATABASE = "resequencer"
_ANSWER_SECONDS = 2
_CREATE_SECONDS = 300


@dataclass(frozen=True, slots=True)
class PostgresqlSettings:
    """The setup of a server.

    Without `fsync` a commit is not on the disk when it is acknowledged; a kill of the server loses nothing even so. With a
    `password`, which has no line break and is valid from the first start on, a client proves by SCRAM-SHA-256 that it knows it;
    without one every client is let in.
    """

    fsync: bool = True
    password: str = ""
    max_connections: int = 100


class PostgresqlServer(Server):
    """A `Server`. It has a database `resequencer`, where text sorts by its bytes, and a superuser `resequencer`."""

    name: ClassVar[str] = "postgresql"
    port_names: ClassVar[Sequence[str]] = ("postgresql",)
    stop_signal: ClassVar[signal.Signals] = signal.SIGINT  # SIGTERM would wait until the last client leaves.

    def __init__(
        self, directory: Path, settings: PostgresqlSettings | None = None, wanted: Mapping[str, int] | None = None
    ) -> None:
        super().__init__(directory, wanted)
        self.settings = settings or PostgresqlSettings()

    @property
    def url(self) -> str:
        """The URL of the database, with the user, and the password if there is one."""
        password = f":{quote(self.settings.password, safe='')}" if self.settings.password else ""
        return f"postgresql://{USER}{password}@{LOOPBACK}:{self.ports['postgresql']}/{DATABASE}"

    def is_ready(self) -> bool:
        """Return whether the server accepts connections; while it repairs its data after a kill it does not."""
        if not self.is_running:
            return False
        place = ("-h", LOOPBACK, "-p", str(self.ports["postgresql"]), "-U", USER, "-d", DATABASE, "-t", str(_ANSWER_SECONDS))
        command = [str(find_postgresql() / "pg_isready"), "-q", *place]
        return subprocess.run(command, stderr=subprocess.DEVNULL, check=False).returncode == 0  # noqa: S603 - all ours.

    def kill(self) -> None:
        """As `Server.kill`. The server's System V segment goes, too: only a further start would remove it."""
        super().kill()
        file = self.directory / DATA / "cluster" / "postmaster.pid"
        for line in file.read_text().splitlines()[6:7] if file.exists() else ():
            subprocess.run(["ipcrm", "-m", line.split()[1]], capture_output=True, check=False)  # noqa: S603, S607 - a number.

    def _prepared(self) -> tuple[Sequence[str], Mapping[str, str]]:
        programs, account = find_postgresql(), find_account()
        prefix = account.prefix() if account else ()
        place = make_place(self.directory / DATA, account)
        cluster = place / "cluster"
        if not (place / "created").exists():
            self._create(programs, prefix, cluster)
            (place / "created").touch()
        way_in = "scram-sha-256" if self.settings.password else "trust"
        (cluster / "pg_hba.conf").write_text(f"host all all {LOOPBACK}/32 {way_in}\n")
        options = [word for option in self._options() for word in ("-c", option)]
        return [*prefix, str(programs / "postgres"), "-D", str(cluster), *options], os.environ

    def _options(self) -> Sequence[str]:
        settings = self.settings
        return (
            f"listen_addresses={LOOPBACK}",
            f"port={self.ports['postgresql']}",
            "unix_socket_directories=",
            f"fsync={'on' if settings.fsync else 'off'}",
            f"max_connections={settings.max_connections}",
            "dynamic_shared_memory_type=mmap",  # In the data; in /dev/shm a killed server would leave it behind.
        )

    def _create(self, programs: Path, prefix: Sequence[str], cluster: Path) -> None:
        """Create the data with user and database. Data of an interrupted creation were never used and are deleted."""
        shutil.rmtree(cluster, ignore_errors=True)
        sync = () if self.settings.fsync else ("--no-sync",)
        names = ("--username", USER, "--auth", "trust", "--encoding", "UTF8", "--no-locale")
        self._run([*prefix, str(programs / "initdb"), "-D", str(cluster), *names, *sync])
        statements = [f"CREATE DATABASE {DATABASE}"]
        if self.settings.password:
            quoted = self.settings.password.replace("'", "''")
            statements.append(f"ALTER ROLE {USER} PASSWORD '{quoted}'")
        alone = [*prefix, str(programs / "postgres"), "--single", "-D", str(cluster), "-c", "exit_on_error=on", "postgres"]
        self._run(alone, "".join(f"{each}\n" for each in statements))

    def _run(self, command: Sequence[str], text: str = "") -> None:
        with self.log.open("ab") as log:
            done = subprocess.run(  # noqa: S603 - all ours.
                command, input=text.encode(), stdout=log, stderr=log, timeout=_CREATE_SECONDS, check=False
            )
        if done.returncode:
            raise self._failure("could not create its data")
