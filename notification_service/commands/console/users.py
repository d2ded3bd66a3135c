"""`resequencer console add-user | add-token | remove-user`: who may use the console."""

import getpass
import sys
from argparse import ArgumentTypeError, Namespace

from notification_service.console.access.role import Role
from notification_service.console.access.users_file import UsersFile
from notification_service.console.settings import HttpSettings
from notification_service.supervision.exit_code import ExitCode
from resequencer.errors import ResequencerError
from resequencer.printable import printable

_LEAST_CHARACTERS = 12
_MOST_CHARACTERS = 1_024
_LONGEST_NAME = 64


class PasswordRefused(ResequencerError):
    """The password cannot be used; the text says why."""


def user_name(text: str) -> str:
    """Return the name. Raises ArgumentTypeError for one that HTTP or a log line cannot carry."""
    if not 0 < len(text) <= _LONGEST_NAME or ":" in text or printable(text) != text:
        raise ArgumentTypeError(f"a name has 1 to {_LONGEST_NAME} characters, none of them a colon or a control character")
    return text


def change_users(arguments: Namespace, settings: HttpSettings) -> ExitCode:
    """Change the file of users. A running console reads it again with the next request."""
    file, name = UsersFile(settings.users_file), arguments.name
    if arguments.subcommand == "remove-user":
        is_removed = file.remove(name)
        sys.stdout.write(f"{'removed' if is_removed else 'there is no user or token named'} {name}\n")
        return ExitCode.DONE if is_removed else ExitCode.NOT_SO
    roles = tuple(Role(each) for each in dict.fromkeys(arguments.role or [Role.VIEWER]))
    if arguments.subcommand == "add-token":
        sys.stdout.write(f"{file.make_token(name, roles)}\n")
        sys.stderr.write(f"This is the token of {name}. It is not stored and cannot be shown again.\n")
        return ExitCode.DONE
    file.set_password(name, _password(), roles)
    sys.stdout.write(f"{name} may log in as {', '.join(roles)}\n")
    return ExitCode.DONE


def _password() -> str:
    """Ask for it twice, or read a line of the standard input where that is no terminal."""
    if sys.stdin.isatty():
        password = getpass.getpass("password: ")
        if getpass.getpass("the same again: ") != password:
            raise PasswordRefused("the two passwords differ; nothing was changed")
    else:
        password = sys.stdin.readline().rstrip("\n")
    if not _LEAST_CHARACTERS <= len(password) <= _MOST_CHARACTERS:
        raise PasswordRefused(f"a password has {_LEAST_CHARACTERS} to {_MOST_CHARACTERS:,} characters; nothing was changed")
    return password
