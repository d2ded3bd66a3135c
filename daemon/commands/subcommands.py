"""Verbs that take an order: `resequencer lookups list`. The options of every verb may stand before the order or behind it."""

from argparse import SUPPRESS, ArgumentParser, Namespace
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from daemon.configuration.configuration import Configuration, load
from daemon.configuration.overrides import add_overrides


class Order(NamedTuple):
    """`add_arguments` adds what it takes beside the options of every verb."""

    name: str
    summary: str
    add_arguments: Callable[[ArgumentParser], None] = lambda _: None


def add_orders(parser: ArgumentParser, *orders: Order, is_required: bool) -> None:
    """The order's name is `order` then, None if none was given."""
    names = " | ".join(order.name for order in orders)
    parsers = parser.add_subparsers(dest="order", metavar=names, required=is_required)
    for order in orders:
        each = parsers.add_parser(order.name, help=order.summary, description=order.summary, allow_abbrev=False)
        each.add_argument("--config", type=Path, default=SUPPRESS, metavar="FILE", help=SUPPRESS)
        add_overrides(each, "more_overrides", help=SUPPRESS)
        each.add_argument("--json", action="store_true", default=SUPPRESS, help="print JSON")
        order.add_arguments(each)


def load_for(arguments: Namespace) -> Configuration:
    """With the settings before the order, then those behind it."""
    return load(arguments.config, [*arguments.overrides, *getattr(arguments, "more_overrides", ())])
