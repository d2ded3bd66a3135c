"""`python -m notification_service.simulator.receiver`: serves until it is killed; with `check` it compares what it took."""

import sys
from argparse import ArgumentParser
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from notification_service.simulator.receiver import check
from notification_service.simulator.receiver.behaviour import BehaviourRefused, add_options, behaviour_of
from notification_service.simulator.receiver.http import ReceiverHttpServer
from notification_service.simulator.receiver.receiver import Receiver


def main(arguments: Sequence[str]) -> int:
    """Return the exit code of a check: 0 if all is well, else 1. Serving returns after Ctrl-C only, with 130."""
    if arguments[:1] == ["check"]:
        return check.main(arguments[1:])
    parser = ArgumentParser(
        prog="python -m notification_service.simulator.receiver", description="Receive payment status notifications on loopback."
    )
    parser.add_argument("--directory", type=Path, required=True, help="of what it keeps: {taken,units,calls}.jsonl")
    parser.add_argument("--port", type=int, required=True)
    add_options(parser)
    options = parser.parse_args(arguments)
    try:
        behaviour = behaviour_of(options)
    except BehaviourRefused as error:
        parser.error(str(error))
    with suppress(KeyboardInterrupt):
        ReceiverHttpServer(options.port, Receiver(options.directory, behaviour)).serve_forever()
    return 130


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
