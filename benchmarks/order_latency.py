"""From an order to its outcome on an idle service: `python -m benchmarks.order_latency [--config FILE] [--orders 50]`.

Without `--config` a service on files is started. With it, a running service of that configuration is asked; it must have orders
enabled. Each order is for a unit that does not exist, so its outcome is a refusal: it takes the way of every order through the
owner's cycle, its commit and its publication, and changes nothing. Two spans are printed: until the owner has decided, by the
outcome's instant, and until the outcome can be read. The ratio is to the owner's idle poll, which is the longest wait of an order
that comes at a wrong moment.
"""

import argparse
import secrets
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from time import sleep, time

from guardian.ports import OrderBook
from notification_service.configuration.configuration import Configuration, load
from notification_service.wiring.composition import make_order_book
from resequencer.order import Order, OrderKind
from resequencer.record import Partition

_IDLE_MS = 500
_GIVE_UP_SECONDS = 30
GOAL_MS = 700
"""The goal for half of the orders, until the owner has decided."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", type=Path, help="the configuration of a running service")
    parser.add_argument("--orders", type=int, default=50, help="how many orders (default: %(default)s)")
    arguments = parser.parse_args()
    if arguments.config is not None:
        return _measure(load(arguments.config, []), arguments.orders)
    with _service() as overrides:
        return _measure(load(overrides=overrides), arguments.orders)


@contextmanager
def _service() -> Iterator[Sequence[str]]:
    with TemporaryDirectory(prefix="resequencer-benchmark-") as directory:
        notification = "payment-status-notification"
        overrides = [
            f"{notification}.orders.enabled=true",
            f"{notification}.http.enabled=false",
            f'{notification}.run-directory="{directory}"',
        ]
        (Path(directory) / "in").mkdir()
        (Path(directory) / "in" / "partition-0.jsonl").touch()
        command = [sys.executable, "-m", "notification_service"]
        subprocess.run([*command, "start", "--set", *overrides], check=True, capture_output=True)
        try:
            yield overrides
        finally:
            subprocess.run([*command, "stop", "--set", *overrides], check=True, capture_output=True)


def _measure(configuration: Configuration, count: int) -> int:
    partition, chance = Partition(configuration.ingress.topic, 0), Random(1)
    decided, readable = list[float](), list[float]()
    with closing(make_order_book(configuration)) as book:
        for _ in range(count):
            sleep(chance.uniform(0.1, 0.7))
            until_decided, until_readable = _ask(book, partition)
            decided.append(until_decided)
            readable.append(until_readable)
    for name, spans in (("decided", decided), ("readable", readable)):
        found = sorted(spans)
        half, most = found[len(found) // 2], found[-1]
        print(f"until {name:8}  p50 {half:6.0f} ms ({half / _IDLE_MS:.2f} of an idle poll)  longest {most:6.0f} ms")
    print(f"goal: p50 until decided {GOAL_MS} ms")
    return 0


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


if __name__ == "__main__":
    sys.exit(main())
