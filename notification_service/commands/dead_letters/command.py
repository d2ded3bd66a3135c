"""`resequencer dead-letters list | show | requeue | edit | discard`: shows dead letters, and decides about them."""

from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from notification_service.commands.dead_letters.list_and_show import list_letters, show_letter
from notification_service.commands.dead_letters.requeue_edit_discard import discard, edit, requeue
from notification_service.commands.subcommands import Subcommand, add_subcommands, instant, load_for
from notification_service.connectors.dead_letters.actions import NEW, Discarded, Edited, Editing, Requeued, Requeueing
from notification_service.connectors.dead_letters.port import AskedFor, DeadLetterStore
from notification_service.supervision.exit_code import ExitCode
from notification_service.wiring.dead_letter_stores import open_store
from resequencer.dead_letter import DeadLetterReason

_SUBCOMMANDS: dict[str, Callable[[Namespace, DeadLetterStore], ExitCode]] = {
    "list": list_letters,
    "show": show_letter,
    "requeue": requeue,
    "edit": edit,
    "discard": discard,
}


def dead_letters(arguments: Namespace) -> ExitCode:
    """Run one subcommand. Exit code 0 only if every named dead letter exists and was processed."""
    with closing(open_store(load_for(arguments), _asked_for(arguments))) as store:
        return _SUBCOMMANDS[arguments.subcommand](arguments, store)


def add_arguments(parser: ArgumentParser) -> None:
    """Add the arguments of each subcommand."""
    add_subcommands(
        parser,
        Subcommand("list", "one line per dead letter, with its state", _add_list),
        Subcommand("show", "one dead letter with its exact headers and value", _add_show),
        Subcommand("requeue", "put the records back to where they are read again, each once", _add_requeue),
        Subcommand("edit", "put one record back with a corrected value", _add_edit),
        Subcommand("discard", "mark dead letters as needing no action; nothing is deleted", _add_discard),
        is_required=True,
    )


def _asked_for(arguments: Namespace) -> AskedFor:
    """Add the ways to select dead letters: by numbers, by an instant, by reason, or all. A subcommand takes some of these."""
    one = getattr(arguments, "number", None)
    numbers = tuple(getattr(arguments, "numbers", ())) or ((one,) if one else ())
    return AskedFor(getattr(arguments, "since", None), numbers, getattr(arguments, "receiver", None))


def _add_receiver(parser: ArgumentParser) -> None:
    what = "those that could not be delivered to this receiver straight from its topic; by default the service's own"
    parser.add_argument("--receiver", metavar="NAME", help=what)


def _add_list(parser: ArgumentParser) -> None:
    _add_receiver(parser)
    states = [NEW, *(action.state for action in (Requeueing, Requeued, Editing, Edited, Discarded))]
    parser.add_argument("--reason", choices=[reason.value for reason in DeadLetterReason], help="only those of this reason")
    parser.add_argument("--unit", help="only those of this unit of work")
    parser.add_argument("--since", type=instant, metavar="INSTANT", help="only those from this instant on: 2026-03-28T23:33Z")
    parser.add_argument("--state", choices=states, help="only those in this state")


def _add_show(parser: ArgumentParser) -> None:
    parser.add_argument("number", metavar="NUMBER", help="the number that `list` shows: IPF_PROCESSING_DATA-0#17")
    parser.add_argument("--raw", action="store_true", help="print the value's bytes and nothing else")


def _add_requeue(parser: ArgumentParser) -> None:
    parser.add_argument("numbers", nargs="*", metavar="NUMBER", help="the numbers that `list` shows")
    parser.add_argument("--reason", choices=[reason.value for reason in DeadLetterReason], help="all new letters of this reason")
    parser.add_argument("--all", action="store_true", help="all new dead letters")
    _add_receiver(parser)
    parser.add_argument("--again", action="store_true", help="also those that were requeued, edited or discarded before")


def _add_edit(parser: ArgumentParser) -> None:
    parser.add_argument("number", metavar="NUMBER", help="the number that `list` shows")
    what = "the whole corrected value, exact to the byte; - reads the standard input. `show --raw` prints the one to start from"
    parser.add_argument("--value", required=True, type=Path, metavar="FILE", help=what)
    parser.add_argument("--because", required=True, type=_reason, metavar="TEXT", help="the reason; it is stored with your name")
    parser.add_argument("--anyway", action="store_true", help="also if it would be a dead letter again, or is of another unit")
    parser.add_argument("--again", action="store_true", help="also if it was requeued, edited or discarded before")


def _add_discard(parser: ArgumentParser) -> None:
    parser.add_argument("numbers", nargs="+", metavar="NUMBER", help="the numbers that `list` shows")
    parser.add_argument("--because", required=True, type=_reason, metavar="TEXT", help="the reason; it is stored with your name")


def _reason(text: str) -> str:
    if not text.strip():
        raise ArgumentTypeError("say why")
    return text
