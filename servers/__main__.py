"""`python -m servers start | stop`: what `make servers` and `make servers-stop` call."""

import sys
from argparse import ArgumentParser
from pathlib import Path

from servers.errors import ServersError
from servers.local import start_local, stop_local

_ORDERS = {"start": start_local, "stop": stop_local}


def main() -> int:
    """0 if all run, or none; 1 with the reason otherwise; 130 after Ctrl-C, which ends no server."""
    parser = ArgumentParser(prog="python -m servers", description="Kafka, Redis and Infinispan on loopback, for trying.")
    parser.add_argument("order", choices=_ORDERS)
    parser.add_argument("--directory", type=Path, default=Path("run/servers"), help="data and logs (run/servers)")
    arguments = parser.parse_args()
    try:
        _ORDERS[arguments.order](arguments.directory, print)
    except (ServersError, OSError) as error:
        sys.exit(f"servers: {error}")
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
