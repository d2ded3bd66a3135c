"""`python -m simulator.receiver`: serves until it is killed; `python -m simulator.receiver check` compares what it took."""

import sys
from argparse import ArgumentParser
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from simulator.receiver import check
from simulator.receiver.behaviour import BehaviourRefused, add_options, behaviour_of
from simulator.receiver.http import ReceiverHttpServer
from simulator.receiver.receiver import Receiver


def main(arguments: Sequence[str]) -> int:
    """Return the exit code of a check: 0 if all is well, else 1. Serving returns after Ctrl-C only, with 130."""
    if arguments[:1] == ["check"]:
        return check.main(arguments[1:])
    parser = ArgumentParser(prog="python -m simulator.receiver", description="Receive payment status notifications on loopback.")
    parser.add_argument("--directory", type=Path, required=True, help="of what it keeps: {taken,units,calls}.jsonl")
    parser.add_argument("--port", type=int, required=True)
    add_options(parser)
    told = parser.parse_args(arguments)
    try:
        behaviour = behaviour_of(told)
    except BehaviourRefused as error:
        parser.error(str(error))
    with suppress(KeyboardInterrupt):
        ReceiverHttpServer(told.port, Receiver(told.directory, behaviour)).serve_forever()
    return 130


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
