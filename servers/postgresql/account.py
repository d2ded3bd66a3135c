"""The account that PostgreSQL runs under, and the place of its data: PostgreSQL refuses to run as root."""

import os
import pwd
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

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
