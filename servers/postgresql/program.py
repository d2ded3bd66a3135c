"""Finds the programs of PostgreSQL."""

from pathlib import Path

from servers.debian_packages import find_program

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
