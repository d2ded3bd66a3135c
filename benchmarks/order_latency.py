"""From an order to its outcome on an idle service: `python -m benchmarks.order_latency [--config FILE] [--orders 50]`.

Without `--config` a service on files is started. With it, a running service of that configuration is asked; it must have orders
enabled. Each order is for a unit that does not exist, so its outcome is a refusal: it takes the way of every order through the
owner's cycle, its commit and its publication, and changes nothing. Two spans are measured: until the owner has decided, by the
outcome's instant, and until the outcome can be read. `of a poll` is the median as a ratio to the owner's idle poll, which is the
longest wait of an order that comes at a wrong moment.
"""

import secrets
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from random import Random
from time import sleep, time

from benchmarks._runner import Case, Figures, arguments, at_quantiles, directory, show
from benchmarks._workload import override, serving
from guardian.ports import OrderBook
from notification_service.configuration.configuration import Configuration, load
from notification_service.wiring.composition import make_order_book
from resequencer.order import Order, OrderKind
from resequencer.record import Partition

_IDLE_MS = 500
_GIVE_UP_SECONDS = 30
GOAL_MS = 700
"""The goal for half of the orders, until the owner has decided."""


@contextmanager
def _service() -> Iterator[Configuration]:
    with directory() as place:
        overrides = [override("orders.enabled", "true"), override("http.enabled", "false"), override("run-directory", place)]
        (place / "in").mkdir()
        (place / "in" / "partition-0.jsonl").touch()
        with serving(*overrides):
            yield load(overrides=overrides)


def measured(configuration: Configuration, count: int) -> dict[str, list[Figures]]:
    partition, chance = Partition(configuration.ingress.topic, 0), Random(1)
    spans: list[tuple[float, float]] = []
    with closing(make_order_book(configuration)) as book:
        for _ in range(count):
            sleep(chance.uniform(0.1, 0.7))
            spans.append(_ask(book, partition))
    found = {}
    for name, values in zip(("decided", "readable"), zip(*spans, strict=True), strict=True):
        quantiles = at_quantiles(values)
        found[name] = [{"of a poll": quantiles["p50"] / _IDLE_MS, **quantiles}]
    return found


def _ask(book: OrderBook, partition: Partition) -> tuple[float, float]:
    """Give an order, and return the milliseconds until it was decided and until its outcome could be read."""
    began = time()
    order = Order(
        id=secrets.token_hex(8), kind=OrderKind.RETRY, by="benchmark", because="a measurement", at=round(began * 1_000), unit="-"
    )
    book.append(partition, order)
    while time() < began + _GIVE_UP_SECONDS:
        for _, each in book.outcomes([partition], order.at - 60_000):
            if each.order is not None and each.order.id == order.id:
                return each.at - began * 1_000, (time() - began) * 1_000
        sleep(0.02)
    raise SystemExit("no outcome: is the service running, and are orders enabled?")


def main() -> None:
    chosen = arguments(__doc__, config=None, orders=50)
    ask = partial(measured, count=chosen.orders)
    if chosen.config is not None:
        found = ask(load(chosen.config, []))
    else:
        with _service() as configuration:
            found = ask(configuration)
    print("milliseconds until an order is decided, and until its outcome is readable")
    show([Case("decided", dict, goal=GOAL_MS), Case("readable", dict)], found, {})


if __name__ == "__main__":
    main()
