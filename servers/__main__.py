"""`python -m servers start | stop`, as called by `make servers` and `make servers-stop`."""

import sys
from argparse import ArgumentParser
from pathlib import Path

from servers.local import start_local, stop_local
from servers.server import ServersError

_COMMANDS = {"start": start_local, "stop": stop_local}


def main() -> int:
    """Return the exit code: 0 if all servers run (or none, after `stop`), 1 with the reason, 130 after Ctrl-C.

    Ctrl-C ends no server.
    """
    servers = "Kafka, Redis, Infinispan, PostgreSQL, Artemis and a receiver of notifications"
    parser = ArgumentParser(prog="python -m servers", description=f"Start or stop {servers} on loopback.")
    parser.add_argument("command", choices=_COMMANDS)
    parser.add_argument(
        "--directory", type=Path, default=Path("run/servers"), help="directory of data and logs (default: run/servers)"
    )
    arguments = parser.parse_args()
    try:
        _COMMANDS[arguments.command](arguments.directory, print)
    except (ServersError, OSError) as error:
        sys.exit(f"servers: {error}")
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
