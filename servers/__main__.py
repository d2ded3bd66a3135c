"""`python -m servers start | status | stop`, as called by `make servers`, `make servers-status` and `make servers-stop`."""

import sys
from argparse import ArgumentParser
from pathlib import Path

from servers.local import start_local, stop_local, tell_local
from servers.server import ServersError

_COMMANDS = {"start": start_local, "status": tell_local, "stop": stop_local}


def main() -> int:
    """Return the exit code: 0 if all servers run (or none, after `stop`), 1 if not, with the reason, 130 after Ctrl-C.

    Ctrl-C ends no server.
    """
    servers = "Kafka, Redis, Infinispan, PostgreSQL, Artemis and a receiver of notifications"
    parser = ArgumentParser(prog="python -m servers", description=f"Start or stop {servers} on loopback, or say which run.")
    parser.add_argument("command", choices=_COMMANDS)
    parser.add_argument(
        "--directory", type=Path, default=Path("run/servers"), help="directory of data and logs (default: run/servers)"
    )
    arguments = parser.parse_args()
    try:
        is_done = _COMMANDS[arguments.command](arguments.directory, print)
    except (ServersError, OSError) as error:
        sys.exit(f"servers: {error}")
    except KeyboardInterrupt:
        return 130
    return int(not is_done)


if __name__ == "__main__":
    sys.exit(main())
