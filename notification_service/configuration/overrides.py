"""`--set key=value …`: settings of the command line, which every command accepts."""

from argparse import ArgumentParser, ArgumentTypeError
from collections.abc import Iterator, Sequence
from typing import Any

_FLAG = "--set"


def add_overrides(parser: ArgumentParser, dest: str = "overrides", **more: Any) -> None:
    parser.add_argument(_FLAG, type=_override, action="append", default=[], dest=dest, metavar="key=value", **more)


def one_by_one(argv: Sequence[str]) -> Iterator[str]:
    """Repeat the flag before each setting, so that argparse cannot take an argument behind the settings for another setting.

    A setting has an equals sign; a subcommand (`list`) has none.
    """
    is_first = is_behind = False
    for argument in argv:
        if is_first:
            is_first, is_behind = False, True
        elif argument == _FLAG:
            is_first = True
        elif is_behind and "=" in argument and not argument.startswith("-"):
            yield _FLAG
        else:
            is_behind = False
        yield argument


def _override(text: str) -> str:
    key, separator, _ = text.partition("=")
    if not separator or not key.strip():
        raise ArgumentTypeError("write key=value")
    return text
