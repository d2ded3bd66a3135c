"""What comes next for a unit that waits, and what stands against it. Promises nothing that the service cannot do now."""

from collections.abc import Callable

from notification_service.console.durations import duration_text, relative_text
from notification_service.console.units.story import UnitStory
from notification_service.status.report import State
from notification_service.status.service_report import NOT_RUNNING, STALE, ServiceReport
from resequencer.clock import instant_of
from resequencer.printable import printable

_NEXT = {
    "deadline": ("its deadline {was} {at}", "At {at} it is released, even if nothing came."),
    "retry": ("its next attempt {was} due at {at}", "The next attempt is due at {at}."),
    "dependency": ("the next call of this server {was} due at {at}", "This server is called again at {at}."),
    "held": ("its hold {was} over at {at}", "An operator holds it until {at}; then it goes on by itself."),
    "remainder": ("the rest of its release {was} due at {at}", "The rest of what it has to send leaves in its next turn."),
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


def _find_pause(report: ServiceReport, partition: str) -> str | None:
    paused = next((each for each in report.whole.partitions if each.partition == partition and each.paused_by), None)
    if paused is None:
        return None
    return f"{paused.paused_by} paused its partition at {paused.paused_since}: deadlines rest until it is resumed"


def _is_starting(report: ServiceReport) -> bool:
    """Return whether no worker has begun its work since the service was started. It is so while none has reported."""
    return all(state == State.STARTING for state, _ in report.workers)


def find_unread(report: ServiceReport | None, partition: str) -> int | None:
    """Return the lag of the partition as its worker reports it: offsets on Kafka, bytes of files. None if it is not known."""
    if report is None or report.state == NOT_RUNNING:
        return None
    return next((each.lag for each in report.whole.partitions if each.partition == partition), None)


def prospect_of(story: UnitStory, show: Callable[[str], str] = printable) -> str:
    """Say what happens to a unit that waits, and when. `show` writes an ISO 8601 instant as it is to be read."""
    wait = story.wait
    if wait is None:
        return "Nothing of it waits."
    until, now = instant_of(wait.until), instant_of(story.as_of)
    at = f"{show(wait.until)} ({relative_text(until, now)})"
    due, promise = _NEXT.get(wait.kind, ("its next turn {was} due at {at}", "Its next turn is due at {at}."))
    due = due.format(was="is" if until > now else "was", at=at)
    if story.hindrance is not None:
        return f"{story.hindrance}; {due}."
    if until > now:
        return promise.format(at=at)
    if wait.kind == "deadline" and story.unread:
        overdue = duration_text(now - until)
        return f"It is overdue by {overdue}: its partition has unread records, which are read first; {due}."
    return f"{due[0].upper()}{due[1:]}; its turn comes next."
