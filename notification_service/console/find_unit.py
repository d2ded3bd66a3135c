"""Finds a unit of work, in whatever partition it is, and says what comes next for it."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, closing, nullcontext, suppress
from time import monotonic

import msgspec

from guardian.ports import OrderBook
from notification_service.connectors.dead_letters.actions import NEW, Deed, LetterId, StoredDeadLetter
from notification_service.connectors.dead_letters.port import AskedFor, DeadLetterStore, Sign, Signature, last_actions
from notification_service.console.orders import ListedOrder, OrderState, list_orders, order_answer
from notification_service.console.sources import Sources
from notification_service.console.unit_story import (
    Arrivals,
    DeadLetters,
    Holder,
    Left,
    UnitDeadLetter,
    UnitDeliveries,
    UnitDelivery,
    UnitOrders,
    UnitState,
    UnitStory,
    arrivals_of,
    became_of,
    find_message_id,
    incomplete_of,
    state_of,
    wait_of,
    waiting_order_text,
)
from notification_service.delivery.ledger.ledger import Ledger
from notification_service.status.report import State
from notification_service.status.service_report import NOT_RUNNING, STALE, ServiceReport
from resequencer.clock import Instant, instant_of, instant_text
from resequencer.errors import ConfigurationError, ResequencerError
from resequencer.order import OrderKind
from resequencer.printable import counted, duration_text, printable
from resequencer.record import Origin, Partition
from resequencer.strategies.window import WINDOW
from storage.view_port import StorageView, UnitView


def relative_text(at: Instant, now: Instant) -> str:
    """Return where the instant lies beside the present one: `in 2 min 10 s`, `25 s ago`."""
    return f"in {duration_text(at - now)}" if at > now else f"{duration_text(now - at)} ago"


def called_text(milliseconds: int) -> str:
    """Return for how long a handler has been called, with a tenth of a second: most answer within seconds."""
    return f"{max(0, milliseconds) / 1_000:.1f} s" if milliseconds < 60_000 else duration_text(milliseconds)


_NEXT = {
    "deadline": ("its deadline {was} {at}", "At {at} it is released, even if nothing came."),
    WINDOW: ("its window {was} over at {at}", "At {at} its window ends, and what waits is sent in order."),
    "retry": ("its next attempt {was} due at {at}", "The next attempt is due at {at}."),
    "dependency": ("the next call of this server {was} due at {at}", "This server is called again at {at}."),
    "held": ("its hold {was} over at {at}", "An operator holds it until {at}; then it continues by itself."),
    "ordered": ("the time of its order {was} over at {at}", "An order for it waits for unread records, until {at} at most."),
    "remainder": (
        "the remainder of its release {was} due at {at}",
        "The remainder is sent in its next turn.",
    ),
    "call": ("the call of its handler {was} due at {at}", ""),
}
_HINDERED = (STALE, State.STARTING, State.SOURCE_UNAVAILABLE, State.STORAGE_UNAVAILABLE, State.OUTPUT_UNAVAILABLE)


def find_service_hindrance(report: ServiceReport | None) -> str | None:
    """Return why not everything that is due is done now, None if the service runs and all its workers report."""
    if report is None or report.state == NOT_RUNNING:
        return "The service does not run here: what waits here waits until it is started, even beyond its deadline"
    if _is_starting(report):
        return "The service is starting: what waits here waits until its workers have taken their partitions over"
    if report.state == STALE:
        slots = ", ".join(str(each.slot) for state, each in report.workers if state == STALE)
        return f"The service is stale (worker {slots}): what waits there waits until it works again, even beyond its deadline"
    return None


def find_hindrance(report: ServiceReport | None, partition: str) -> str | None:
    """Return why nothing is done now for the units of this partition, None if its worker works."""
    if report is None or report.state == NOT_RUNNING:
        return "The service does not run here: it waits until it is started"
    if _is_starting(report):
        return "The service is starting: it waits until a worker has taken its partition over"
    untaken = next((each for each in report.whole.untaken if each.partition == partition), None)
    if untaken is not None:
        why = f"{untaken.unavailable} unavailable"
        return f"Worker {untaken.slot} has not taken its partition over yet ({why}): it waits until that is done"
    slot = next((each.slot for each in report.whole.partitions if each.partition == partition), None)
    if slot is None:
        return "No worker of this machine has its partition now: unless another machine has it, it waits until one takes it over"
    state = next((state for state, each in report.workers if each.slot == slot), None)
    if state in _HINDERED:
        return f"Worker {slot}, which has its partition, is in the state “{state}”: it waits until the worker works again"
    return _find_pause(report, partition)


def _find_lingering(report: ServiceReport | None, unit: str) -> str | None:
    calls = None if report is None else report.whole.calls
    if calls is None or unit not in calls.lingering_units:
        return None
    return "A call of its handler continues after its time-out: the next one begins when that has ended"


def _count_waiting_calls(report: ServiceReport | None, partition: str) -> int:
    holder = find_holder(report, partition)
    calls = [each.calls for _, each in report.workers if holder and each.slot == holder.slot] if report is not None else []
    return sum(each.waiting for each in calls if each is not None)


def _find_pause(report: ServiceReport, partition: str) -> str | None:
    paused = next((each for each in report.whole.partitions if each.partition == partition and each.paused_by), None)
    if paused is None:
        return None
    return f"{paused.paused_by} paused its partition at {paused.paused_since}: deadlines do not run until it is resumed"


def _is_starting(report: ServiceReport) -> bool:
    """Return whether no worker has begun its work since the service was started. It is so while none has reported."""
    return all(state == State.STARTING for state, _ in report.workers)


def find_unread(report: ServiceReport | None, partition: str) -> int | None:
    """Return the lag of the partition as its worker reports it: offsets on Kafka, bytes of files. None if it is not known."""
    if report is None or report.state == NOT_RUNNING:
        return None
    return next((each.lag for each in report.whole.partitions if each.partition == partition), None)


def prospect_of(story: UnitStory) -> str:
    """Say what happens to a unit that waits, and when."""
    wait = story.wait
    if wait is None:
        return "Nothing of it waits."
    until, now = instant_of(wait.until), instant_of(story.as_of)
    at = f"{printable(wait.until)} ({relative_text(until, now)})"
    kind = WINDOW if wait.kind == "deadline" and wait.waits_for == WINDOW else wait.kind
    due, promise = _NEXT.get(kind, ("its next turn {was} due at {at}", "Its next turn is due at {at}."))
    due = due.format(was="is" if until > now else "was", at=at)
    if story.hindrance is not None:
        return f"{story.hindrance}; {due}."
    if wait.kind == "call":
        called = f"Its handler has been called for {called_text(now - until)}"
        waiting, verb = story.calls_waiting, "waits" if story.calls_waiting == 1 else "wait"
        return f"{called}, or is not called yet: {counted(waiting, 'call')} {verb} to begin." if waiting else f"{called}."
    if until > now:
        return promise.format(at=at)
    if wait.kind == "deadline" and story.unread:
        overdue = duration_text(now - until)
        return f"It is overdue by {overdue}: its partition has unread records, which are read first; {due}."
    return f"{due[0].upper()}{due[1:]}; its turn comes next."


_MAX_FOUND = 100
_WAITING_KINDS = (OrderKind.RELEASE, OrderKind.SKIP)
_MAX_READ = 20
"""Of how many records the time is read from their topic: each is a request to the brokers."""

OpenStore = Callable[[AskedFor, Sign], DeadLetterStore]


def find_dead_letters(open_store: OpenStore, unit: str, since: Instant | None, max_seconds: float) -> DeadLetters:
    """Return the unit's dead letters from `since` on (None: all), read for so long at most.

    The result has what a store raises.
    """
    return search_dead_letters(open_store, lambda stored: stored.unit == unit, since, max_seconds)


def search_dead_letters(
    open_store: OpenStore, is_wanted: Callable[[StoredDeadLetter], bool], since: Instant | None, max_seconds: float
) -> DeadLetters:
    """Return the dead letters that are wanted, otherwise as `find_dead_letters`."""
    began = monotonic()
    span = "all dead letters" if since is None else f"the dead letters since {instant_text(since)}"
    found: list[StoredDeadLetter] = []
    looked_at = 0
    try:
        with closing(open_store(AskedFor(since), no_signature)) as store:
            for stored in store.letters():
                looked_at += 1
                if is_wanted(stored) and (since is None or stored.letter.dead_at >= since):
                    found.append(stored)
                if len(found) >= _MAX_FOUND or monotonic() - began > max_seconds:
                    return _incomplete(found, {}, f"the first {counted(looked_at, 'dead letter')} of {span}; there may be more")
            actions = last_actions(store) if found else {}
    except ResequencerError as error:
        return _incomplete(found, {}, f"not all could be read: {printable(str(error))}")
    return DeadLetters(_dead_letters(found, actions), since is None, f"{span} ({looked_at:,} read)")


def _incomplete(found: list[StoredDeadLetter], actions: dict[LetterId, Deed], searched: str) -> DeadLetters:
    return DeadLetters(_dead_letters(found, actions), is_complete=False, searched=searched)


def _dead_letters(found: list[StoredDeadLetter], actions: dict[LetterId, Deed]) -> tuple[UnitDeadLetter, ...]:
    return tuple(_dead_letter(each, actions.get(each.letter_id)) for each in found)


def _dead_letter(stored: StoredDeadLetter, action: Deed | None) -> UnitDeadLetter:
    dead_letter = stored.letter
    state = action.state if action else NEW
    at = instant_text(dead_letter.dead_at)
    return UnitDeadLetter(stored.number, at, dead_letter.reason.value, dead_letter.error, str(dead_letter.record.origin), state)


def no_signature() -> Signature:
    raise AssertionError("reading signs nothing")


def find_orders(
    open_orders: Callable[[], OrderBook], partitions: Collection[Partition], unit: str, since: Instant, now: Instant
) -> UnitOrders:
    """Return the unit's orders that were given at `since` (0: all) or later: the newest 100 at most, the oldest of them first.

    The result has what the book raises.
    """
    span = "all orders" if not since else f"the orders since {instant_text(since)}"
    try:
        with closing(open_orders()) as book:
            given = [each for each in book.orders(partitions, since) if each.order.unit == unit]
            outcomes = book.outcomes(partitions, since) if given else ()
    except ResequencerError as error:
        return UnitOrders((), is_complete=False, searched=f"no orders: {printable(str(error))}")
    listed = list_orders(given, outcomes, now)
    searched = span if len(listed) <= _MAX_FOUND else f"the newest {_MAX_FOUND} of {len(listed)} in {span}"
    return UnitOrders(
        tuple(order_answer(each) for each in reversed(listed[:_MAX_FOUND])), not since and len(listed) <= _MAX_FOUND, searched
    )


DAY_MS = 86_400_000
_WEEK_MS = 7 * DAY_MS

NOT_STORED = "storage none keeps the state of units in the memory of its worker, where no other program can read it"


class Search(msgspec.Struct, frozen=True):
    """How far to search. Dead letters count from `letters_since` on, and orders from a week ago on (None: all of both).

    The search for dead letters and that for notifications each take at most about `max_seconds`. So does the look into the
    storage, where that does not answer. `first_in` are partitions to try first, `partition` is the only one to look in.
    """

    letters_since: Instant | None = None
    max_seconds: float = 2.0
    first_in: tuple[Partition, ...] = ()
    partition: Partition | None = None


class FoundState(msgspec.Struct, frozen=True):
    partition: Partition
    view: UnitView


class Looked(msgspec.Struct, frozen=True):
    found: tuple[FoundState, ...] = ()
    looked_in: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()


Viewing = AbstractContextManager[StorageView | None]


def find_story(sources: Sources, viewing: Viewing, unit: str, search: Search, ledger: Ledger | None = None) -> UnitStory:
    """Return everything that is known of a unit. What cannot be read is one of the story's problems, and never an error.

    `viewing` gives the storage's view, and is held while the storage is read, and no longer. It gives None with storage `none`:
    then only what was sent, what became a dead letter, and the oldest waits are known.
    """
    report = sources.find_report()
    partitions, unknown = partitions_of(sources, search, report)
    # Before the state: of an order that is done, the state is not older.
    orders = _find_orders(sources, unit, partitions, search, report)
    with viewing as view:
        is_stored = view is not None
        looked = Looked(problems=(NOT_STORED,)) if view is None else look_in(view, unit, partitions, unknown, search.max_seconds)
        is_stopped = report is None or report.state == NOT_RUNNING
        is_asked = is_stopped and not looked.found
        read_to = _positions(view, partitions) if is_asked and view is not None and not looked.problems else None
    first = looked.found[0] if looked.found else None
    state, problems, message_id = (None, (), None) if first is None else _read_state(sources, first, report)
    unread = _unread(sources, partitions, read_to) if is_asked else None
    dead_letters = _find_dead_letters(sources, unit, search, report)
    sent = sources.find_sent(unit, search.max_seconds)
    reported = None if is_stored else _reported(unit, report)
    became = became_of(state, sent, dead_letters)
    return UnitStory(
        unit,
        instant_text(sources.clock.now()),
        None if first is None else str(first.partition),
        looked.looked_in,
        dead_letters,
        sent,
        None if first is None or first.view.waits is None else wait_of(first.view.waits),
        None if first is None else find_holder(report, str(first.partition)),
        state,
        tuple(str(each.partition) for each in looked.found[1:]),
        (*looked.problems, *problems),
        _meaning(looked, dead_letters, sent, orders, reported, unread) if first is None else (),
        None if first is None else find_hindrance(report, str(first.partition)) or _find_lingering(report, unit),
        None if first is None else find_unread(report, str(first.partition)),
        incomplete_of(sent.found),
        orders,
        0 if first is None else _count_waiting_calls(report, str(first.partition)),
        _find_arrivals(sources, unit, became, search, report),
        find_deliveries(sources, ledger, unit),
        next((each.group for each in sent.found if each.group is not None), None),
        None if sources.groups is None else message_id,
    )


def _find_arrivals(
    sources: Sources, unit: str, became: Mapping[str, str], search: Search, report: ServiceReport | None
) -> Arrivals:
    """Find what came, in the archive, and by the positions that are known; the broker is not asked if it does not answer."""
    archived = sources.find_arrived(unit, search.max_seconds)
    origins = [origin for each in became if each not in archived.found and (origin := Origin.find(each)) is not None]
    is_away = report is not None and report.state in (State.SOURCE_UNAVAILABLE, State.OUTPUT_UNAVAILABLE)
    written = {} if is_away or not origins else sources.find_written(sorted(origins)[-_MAX_READ:], search.max_seconds)
    return arrivals_of(archived.found, {str(origin): at for origin, at in written.items()}, became, archived.searched)


def find_deliveries(sources: Sources, ledger: Ledger | None, unit: str) -> UnitDeliveries:
    """Find what the ledger has of the unit. The result says what else would know it."""
    if ledger is None:
        why = "no receiver is configured"
        if sources.direct_receivers:
            why = (
                f"{', '.join(sources.direct_receivers)} get it straight from a topic, and the page of the receiver shows how far "
                "that is; the ledger (policy = ledger) remembers each notification"
            )
        return UnitDeliveries((), is_complete=False, searched=f"not known here: {why}")
    try:
        found = [each for each in ledger.deliveries(unit, _MAX_FOUND) if each.unit == unit]
    except ResequencerError as error:
        return UnitDeliveries((), is_complete=False, searched=f"not known now: {printable(str(error))}")
    shown = tuple(
        UnitDelivery(
            each.notification_id,
            each.receiver,
            each.job,
            each.status,
            each.attempts,
            each.position,
            instant_text(each.taken_at),
            None if each.ended_at is None else instant_text(each.ended_at),
        )
        for each in found
    )
    searched = "the ledger of deliveries; what has ended is deleted after its retention (delivery.ledger.retention)"
    return UnitDeliveries(shown, len(found) < _MAX_FOUND, searched)


def known_partitions(sources: Sources, report: ServiceReport | None) -> tuple[Sequence[Partition], tuple[str, ...]]:
    """Return the partitions of the input and of the report, by number, and what is not known of them."""
    problems: tuple[str, ...] = ()
    found: set[Partition] = set()
    try:
        found |= set(sources.find_partitions())
    except ResequencerError as error:
        problems = (f"not all partitions may be known: {printable(str(error))}",)
    reported = () if report is None else tuple(each.partition for each in report.whole.partitions)
    found |= {each for name in reported if (each := Partition.find(name)) is not None}
    return sorted(found), problems


def find_holder(report: ServiceReport | None, partition: str) -> Holder | None:
    """Return the worker that has the partition, None if no worker of this machine's service has it now."""
    if report is None or report.state == NOT_RUNNING:
        return None
    slot = next((each.slot for each in report.whole.partitions if each.partition == partition), None)
    if slot is None:
        return None
    return Holder(slot, next((each.worker_process_id for _, each in report.workers if each.slot == slot), None))


def _positions(view: StorageView, partitions: Iterable[Partition]) -> Mapping[Partition, int] | None:
    """Return the next offset of each partition that the storage has a position of, None if it does not answer."""
    try:
        headers = {each: view.find_header(each) for each in partitions}
    except ResequencerError:
        return None
    return {each: header.next_offset for each, header in headers.items() if header and header.next_offset is not None}


def _unread(sources: Sources, partitions: Iterable[Partition], read_to: Mapping[Partition, int] | None) -> str:
    """Say how much of the input is unread while no service runs: from the storage's position to the log's end, as it is now."""
    if read_to is None:
        return "How much of the input is unread is not known, because the storage's positions are not."
    try:
        ends = sources.find_ends()
        if not ends and sources.find_partitions():
            return "How much of the input is unread is not known: only a program that reads a queue knows it."
    except ResequencerError as error:
        return f"How much of the input is unread is not known: {printable(str(error))}."
    unread = []
    for each in partitions:
        end, position = ends.get(each), read_to.get(each)
        if end and position is None:
            unread.append(f"{each} ends at {end:,}, and the storage has no position of it")
        elif end and position is not None and end > position:
            unread.append(f"{each} {end - position:,}")
    if not unread:
        return "Nothing of the input is unread."
    return f"Unread in the input (offsets on Kafka, bytes of files): {'; '.join(unread)}."


def _find_dead_letters(sources: Sources, unit: str, search: Search, report: ServiceReport | None) -> DeadLetters:
    """Find the dead letters, without waiting for brokers of which the service knows that they do not answer."""
    if report is not None and report.state in (State.SOURCE_UNAVAILABLE, State.OUTPUT_UNAVAILABLE):
        return DeadLetters((), is_complete=False, searched=f"nothing, because the service says: {report.state}")
    return find_dead_letters(sources.open_dead_letters, unit, search.letters_since, search.max_seconds)


def _find_orders(
    sources: Sources, unit: str, partitions: Iterable[Partition], search: Search, report: ServiceReport | None
) -> UnitOrders | None:
    """Find the orders, without waiting for brokers of which the service knows that they do not answer."""
    if sources.open_orders is None:
        return None
    if report is not None and report.state in (State.SOURCE_UNAVAILABLE, State.OUTPUT_UNAVAILABLE):
        return UnitOrders((), is_complete=False, searched=f"no orders, because the service says: {report.state}")
    now = sources.clock.now()
    since = 0 if search.letters_since is None else max(0, now - _WEEK_MS)
    return find_orders(sources.open_orders, frozenset(partitions), unit, since, now)


def partitions_of(sources: Sources, search: Search, report: ServiceReport | None) -> tuple[Iterable[Partition], tuple[str, ...]]:
    if search.partition is not None:
        return (search.partition,), ()
    known, problems = known_partitions(sources, report)
    return dict.fromkeys((*search.first_in, *known)), problems


def look_in(
    view: StorageView, unit: str, partitions: Iterable[Partition], problems: tuple[str, ...], max_seconds: float
) -> Looked:
    """Look in all of them, also behind the first hit: with two partitioners a unit's envelopes lie in two partitions.

    Once a partition did not answer and the time is over, the others are not asked: each would wait as long.
    """
    found: list[FoundState] = []
    looked_in: list[str] = []
    failed: dict[str, list[str]] = {}
    until = monotonic() + max_seconds
    for partition in partitions:
        if failed and monotonic() > until:
            failed.setdefault("not tried, because others did not answer in time", []).append(str(partition))
            continue
        try:
            here = view.find_unit(partition, unit)
        except ResequencerError as error:
            failed.setdefault(printable(str(error)), []).append(str(partition))
            continue
        looked_in.append(str(partition))
        if here is not None:
            found.append(FoundState(partition, here))
    found.sort(key=lambda each: each.view.waits is None)
    failures = (f"{', '.join(names)} could not be read: {why}" for why, names in failed.items())
    return Looked(tuple(found), tuple(looked_in), (*problems, *failures))


def note_waits(sources: Sources, viewing: Viewing, listed: Sequence[ListedOrder]) -> Sequence[ListedOrder]:
    """Add to orders without an outcome for how many records they wait: to the first 100 that may wait.

    `viewing` is used only if there are any. A storage that does not answer adds nothing.
    """
    may_wait = [each for each in listed if each.state is OrderState.GIVEN and each.order.kind in _WAITING_KINDS]
    noted: dict[tuple[Partition, int], ListedOrder] = {}
    with suppress(ResequencerError), viewing if may_wait else nullcontext() as view:
        for each in may_wait[:_MAX_FOUND]:
            if view is None:
                break
            found = view.find_unit(each.partition, each.order.unit or "")
            waiting = None if found is None else sources.codec.restore(each.partition, found.snapshot).waiting_order
            if waiting is not None and waiting.order_offset == each.offset:
                text = waiting_order_text(waiting, _find_read_to(sources.find_report(), str(each.partition)), sources.lag_unit)
                noted[each.partition, each.offset] = msgspec.structs.replace(each, text=text)
    return [noted.get((each.partition, each.offset), each) for each in listed]


def _find_read_to(report: ServiceReport | None, partition: str) -> int | None:
    reported = () if report is None or report.state == NOT_RUNNING else report.whole.partitions
    return next((each.read_to for each in reported if each.partition == partition), None)


def _read_state(
    sources: Sources, found: FoundState, report: ServiceReport | None
) -> tuple[UnitState | None, tuple[str, ...], str | None]:
    """Return the state, what is wrong with it, and the id of the message that the unit's payment data is of."""
    codec, read_to = sources.codec, _find_read_to(report, str(found.partition))
    try:
        unit = codec.restore(found.partition, found.view.snapshot)
        return state_of(unit, codec.strategy, read_to, sources.lag_unit), (), find_message_id(unit)
    except ConfigurationError as error:
        return None, (f"its state cannot be read with this configuration: {error}",), None
    except ResequencerError as error:
        return None, (printable(str(error)),), None


def _reported(unit: str, report: ServiceReport | None) -> str:
    """Return what is known of a unit whose state is in the memory of a worker: workers report their oldest waits."""
    for each in () if report is None else report.whole.oldest_waits:
        if each.unit == unit:
            return f"It waits for {printable(each.waits_for)} since {each.since}, until {each.until}, as its worker reports."
    return "Whether it waits is known to the service alone, which reports its oldest waits only; it is not among them."


def _meaning(
    looked: Looked, dead_letters: DeadLetters, sent: Left, orders: UnitOrders | None, reported: str | None, unread: str | None
) -> tuple[str, ...]:
    """Return what it means that the storage has no such unit. `unread` is None if the service runs."""
    if unread is not None:
        stopped = f"The service does not run here, so nothing of the input is read until it is started. {unread}"
        return (stopped, *_meaning(looked, dead_letters, sent, orders, reported, None))
    if reported is not None:
        return (reported,)
    trace = _trace(dead_letters, sent, orders)
    if trace is not None:
        is_unread = bool(looked.problems) and looked.problems != (NOT_STORED,)
        return ("It was here, and its state may be in a partition that could not be read." if is_unread else trace,)
    meanings = (
        "Nothing of it ever came here: its id is spelt otherwise, it went to another service, or it is not sent yet.",
        "Its state has expired: it was complete, and the retention after its last change is over.",
        "Its envelopes lie unread in the input: see the lag of its partition.",
    )
    return ("It may be in a partition that could not be read.", *meanings) if looked.problems else meanings


def _trace(dead_letters: DeadLetters, sent: Left, orders: UnitOrders | None) -> str | None:
    """Return what shows that a unit without a state was here, None if nothing does."""
    if sent.found:
        return "Notifications of it were sent, so it was here. Nothing of it waits now, and its state has expired since."
    if dead_letters.found:
        return "It has dead letters, and no state: none of its envelopes was handled or stashed, or its state has expired since."
    if orders is not None and any(each.result is not None and not each.result.is_refusal for each in orders.found):
        return "An order for it was executed, so it was here. Its state has expired since, or the storage has lost it."
    return None
