"""What delivery costs: `python -m benchmarks.delivery [--postgresql] [--large]`.

Without `--postgresql` the ledger is SQLite; with it, it is PostgreSQL in addition: the project's own server, in a temporary
directory. Everything is synced to the disk as in the service. Measured are:

    deliveries   A worker (steps = deliver, the rows are in the ledger) against a bare loop with httpx that makes the same calls
                 at the same concurrency, without ledger and order. The receiver is `notification_service.simulator.receiver`,
                 in a process of its own.
                 How busy each process was, in CPU seconds per second, says what the figures are limited by.
    claims       A claim of 20 rows, and writing their outcomes, beside many rows that have ended.
    intake       Rows per second from a file of notifications of 1.4 KB into the ledger.
    ticks        One look for work while the gate is shut and many rows wait, each the first one of its unit; and one that claims
                 the probe. A scheduler looks once in eight seconds then.

Loop and worker take turns, and the best of `--rounds` counts. It fails if something was lost, doubled or overtaken.
"""

import argparse
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks._delivery import calls, rows
from benchmarks._delivery.calls import LOOP, Measured
from benchmarks._delivery.rows import FLAT, INTAKE_GOAL, Costs
from benchmarks._delivery.stage import Database
from servers.lease import leased
from servers.postgresql import PostgresqlServer

_CLAIMED_BESIDE = (1_000, 100_000, 1_000_000)
_WAITING = (1_000, 10_000, 100_000)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--postgresql", action="store_true", help="on PostgreSQL, too")
    parser.add_argument("--large", action="store_true", help="claims beside 10 000 000 rows, ticks beside 1 000 000")
    parser.add_argument("--deliveries", type=int, default=4_000, help="how many for each round (default: %(default)s)")
    parser.add_argument("--concurrency", type=int, default=20, help="calls at once (default: %(default)s, as in the service)")
    parser.add_argument("--intake", type=int, default=20_000, help="notifications in the file (default: %(default)s)")
    parser.add_argument("--claims", type=int, default=200, help="how many claims and ticks for a median (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="default: %(default)s")
    parts = ("deliveries", "claims", "intake", "ticks")
    parser.add_argument("--only", choices=parts, nargs="*", default=parts, help="default: all")
    chosen = parser.parse_args(arguments)
    claimed_beside = (*_CLAIMED_BESIDE, 10_000_000) if chosen.large else _CLAIMED_BESIDE
    waiting = (*_WAITING, 1_000_000) if chosen.large else _WAITING
    with databases(postgresql=chosen.postgresql) as found:
        for database in found:
            if "deliveries" in chosen.only:
                show_deliveries(database, chosen.deliveries, chosen.concurrency, chosen.rounds)
            if "intake" in chosen.only:
                show_intake(database, chosen.intake, chosen.rounds)
            if "claims" in chosen.only:
                costs = rows.claims(database, claimed_beside, chosen.claims)
                show_costs(f"{database.name}, beside ended rows", ("a claim", "its outcomes"), costs)
            if "ticks" in chosen.only:
                costs = rows.ticks(database, waiting, chosen.claims)
                show_costs(f"{database.name}, waiting rows, gate shut", ("a tick", "the probe's"), costs)


@contextmanager
def databases(*, postgresql: bool) -> Iterator[list[Database]]:
    """Yield SQLite, and with `postgresql` a server that ends with this process, even if it is killed."""
    with ExitStack() as stack:
        parent = stack.enter_context(TemporaryDirectory(prefix="resequencer-benchmark-", ignore_cleanup_errors=True))
        directory = stack.enter_context(leased(Path(parent) / "delivery"))
        found = [Database("SQLite", directory)]
        if postgresql:
            server = PostgresqlServer(directory / "postgresql")
            stack.callback(server.kill)
            server.start()
            found.append(Database("PostgreSQL", directory, server.url, server.process and server.process.pid))
        yield found


def show_deliveries(database: Database, count: int, concurrency: int, rounds: int) -> None:
    found = calls.deliveries(database, count, concurrency, rounds)
    busy = f"{'client':>12}{'receiver':>10}{'PostgreSQL':>12}"
    print(f"\n{count:,} deliveries, {concurrency} at once{'':10}deliveries/s{'of the loop':>13}{'goal':>6}    busy:{busy}")
    for name, spent in found.items():
        goal = "" if name == LOOP else str(calls.GOAL)
        print(f"{name:40}{count / spent.wall:12,.0f}{found[LOOP].wall / spent.wall:13.2f}{goal:>6}         {_busy(spent)}")


def show_costs(title: str, names: tuple[str, str], costs: Iterator[tuple[int, Costs]]) -> None:
    print(f"\n{title:40}" + "".join(f"{name + ', ms':>18}{'ratio':>8}" for name in names) + f"{'goal':>8}", flush=True)
    base: Costs | None = None
    for size, cost in costs:
        base = base or cost
        pairs = zip(cost, base, strict=True)
        print(f"{size:<40,}" + "".join(f"{each:18.2f}{each / of:8.2f}" for each, of in pairs) + f"{f'< {FLAT}':>8}", flush=True)


def show_intake(database: Database, count: int, rounds: int) -> None:
    found = rows.intake(database, count, rounds)
    print(f"\n{database.name}, intake of {count:,} rows: {count / found.whole:,.0f} rows/s (goal {INTAKE_GOAL:,});", end=" ")
    print(f"reading and decoding the file alone {count / found.reading:,.0f}/s, ratio {found.reading / found.whole:.2f}")


def _busy(spent: Measured) -> str:
    """CPU seconds per second: 1.00 is a whole core."""
    return f"{spent.client / spent.wall:12.2f}{spent.receiver / spent.wall:10.2f}{spent.database / spent.wall:12.2f}"


if __name__ == "__main__":
    main()
