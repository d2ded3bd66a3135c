"""A service's report as lines for people."""

from collections.abc import Iterator, Mapping, Sequence

from guardian.metrics import CycleTimes
from notification_service.status.report import CallsStatus, PartitionStatus, State, StatusReport, UntakenPartition
from notification_service.status.service_report import NOT_RUNNING, STALE, ServedStatus, ServiceReport
from resequencer.printable import counted
from resequencer.storage_port import WaitKind


def status_lines(service: ServiceReport, on_disk: str) -> Iterator[str]:
    """Return the lines of the report. With several workers, a line about one of them names it."""
    state, whole = service.state, service.whole
    if state == NOT_RUNNING:
        yield f"{state}: the service ended with: {whole.reason}" if whole.reason else state
        return
    is_alone = len(service.workers) == 1
    yield _state_text(state, whole)
    worker = "" if whole.worker_process_id in (None, whole.process_id) else f", its worker {whole.worker_process_id}"
    yield f"process {whole.process_id}{worker} since {whole.started_at}, reported at {whole.reported_at}"
    yield from _restarts(whole)
    yield from (() if is_alone else _workers(service))
    yield from _metrics(service)
    yield from () if whole.lookups_version is None else (f"lookups: {whole.lookups_version}",)
    yield from () if whole.deadlines is None else (f"deadlines: {whole.deadlines}",)
    yield f"on disk: {on_disk}"
    yield from (_partition(each, _holder(each.slot, is_alone=is_alone)) for each in whole.partitions)
    yield from (_untaken(each, _holder(each.slot, is_alone=is_alone)) for each in whole.untaken)
    yield from (_last_cycle(each, is_alone=is_alone) for _, each in service.workers if each.last_cycle is not None)
    yield from (f"{name} unavailable: {_units(units)} for it" for name, units in whole.unavailable.items())
    shown, waiting = len(whole.oldest_waits), whole.units.waiting
    yield from (f"the {shown} longest of {waiting} waits:",) if shown < waiting else ()
    yield from (
        f"waits since {each.since}: {each.unit} for {each.waits_for} ({each.stashed} stashed, {wake_text(each.kind, each.until)})"
        for each in whole.oldest_waits
    )
    yield from (f"note: {each}" for each in whole.notes)


_PREPOSITIONS: Mapping[str, str] = {WaitKind.CALL: "since", WaitKind.ORDERED: "until"}


def wake_text(kind: str, until: str) -> str:
    """Say when a waiting unit is woken. Of one whose handler is called, it is not known: `until` is since when it is called.

    An order waits for unread records until `until` at most.
    """
    return f"{kind} {_PREPOSITIONS.get(kind, 'at')} {until}"


def served_lines(served: ServedStatus) -> Iterator[str]:
    """Where something is served by HTTP, or why it is not."""
    yield from (f"{name}: {url}" for name, url in served.http.items())
    yield from (f"note: {each}" for each in served.http_notes)


def _state_text(state: str, report: StatusReport) -> str:
    if state == STALE:
        text = f"{state}: no report since {report.reported_at}; it was {report.state} then"
        return f"{text}: {report.reason}" if report.reason else text
    return f"{state}: {report.reason}" if report.reason else state


def _workers(service: ServiceReport) -> Iterator[str]:
    for state, each in service.workers:
        holds = (
            "no partition is left for it; it is on standby" if each.is_standing_by else counted(len(each.partitions), "partition")
        )
        process = "" if each.worker_process_id is None else f" (process {each.worker_process_id})"
        yield f"worker {each.slot}{process}: {_state_text(state, each)}" + (f", {holds}" if state == State.READY else "")


def _restarts(report: StatusReport) -> Iterator[str]:
    if report.restarts:
        times = "once" if report.restarts == 1 else f"{report.restarts} times"
        before = "the previous worker " if report.worker_count == 1 else ""
        yield f"started again {times}: {before}{report.last_exit}"


def _metrics(service: ServiceReport) -> Iterator[str]:
    report = service.whole
    units, counts = report.units, report.counts
    pending = sum(each.unpublished for each in report.partitions)
    yield f"units: {units.active} active, {units.waiting} waiting with {counted(units.stashed_envelopes, 'stashed envelope')}"
    yield f"counts since {_starts(service)}"
    yield (
        f"records {counts.get('records', 0)}, handled {counts.get('handled', 0)}, duplicates {counts.get('duplicates', 0)}, "
        f"released units {counts.get('released_units', 0)}, dead letters {sum(report.dead_letters.values())}"
    )
    by_status = ", ".join(f"{name} {count}" for name, count in sorted(report.notifications.items()))
    yield f"notifications {sum(report.notifications.values())}{f': {by_status}' if by_status else ''}"
    if report.calls is not None:
        yield from _calls(report.calls, counts.get("timeouts", 0))
    if pending:
        yield f"pending: {pending} committed, not sent yet"


def _starts(service: ServiceReport) -> str:
    """Say since when is counted: each worker begins at 0."""
    first, *others = sorted({each.started_at for _, each in service.workers})
    return f"the starts of the workers, from {first} to {others[-1]}" if others else first


def _calls(calls: CallsStatus, timeouts: int) -> Iterator[str]:
    longest = "" if calls.longest is None else f", the longest for {calls.longest_ms / 1_000:.1f} s (unit {calls.longest})"
    yield f"calls: {calls.under_way} under way{longest}, {calls.waiting} waiting to begin, {counted(timeouts, 'time-out')}"
    if calls.lingering:
        more = ", …" if calls.lingering > len(calls.lingering_units) else ""
        yield f"calls that continue after their time-out: {calls.lingering} (units {', '.join(calls.lingering_units)}{more})"


def _units(count: int) -> str:
    return "1 unit waits" if count == 1 else f"{count} units wait"


def _holder(slot: int, *, is_alone: bool) -> str:
    return "" if is_alone else f"worker {slot}, "


def _partition(each: PartitionStatus, holder: str) -> str:
    lag = "lag unknown" if each.lag is None else f"{each.lag} behind"
    place = f"{each.partition}: {holder}read to {each.read_to}"
    return f"{place}, {lag}, acknowledged {each.acknowledged}, {each.unpublished} to publish"


def _untaken(each: UntakenPartition, holder: str) -> str:
    why = f"{each.unavailable} unavailable: {each.reason}"
    return f"{each.partition}: {holder}not taken over yet: {why}; next try at {each.next_try_at}"


def _last_cycle(report: StatusReport, *, is_alone: bool) -> str:
    times = report.last_cycle
    assert isinstance(times, CycleTimes)
    whose = "" if is_alone else f" of worker {report.slot}"
    steps = f"poll {times.poll_ms}, decide {times.decide_ms}, commit {times.commit_ms}, publish {times.publish_ms} ms"
    return f"last cycle{whose} with work: {counted(times.records, 'record')}, {steps}"


_WIDTH, _HEIGHT = 80, 24


def short_status_lines(service: ServiceReport) -> Iterator[str]:
    """Return what a person looks at first: the state, sums, the longest wait, and what is not as it should be."""
    state, whole = service.state, service.whole
    yield _state_text(state, whole)
    if state == NOT_RUNNING:
        return
    yield f"process {whole.process_id} since {whole.started_at}, {counted(len(service.workers), 'worker')}"
    yield from _restarts(whole)
    yield from (f"worker {each.slot}: {_state_text(its, each)}" for its, each in service.workers if its != state)
    lags = [each.lag for each in whole.partitions]
    known = [lag for lag in lags if lag is not None]
    behind = f"{sum(known):,} behind" if len(known) == len(lags) else "lag unknown"
    pending = sum(each.unpublished for each in whole.partitions)
    yield f"{counted(len(lags), 'partition')}: {behind}, {pending:,} to publish"
    yield from (_untaken(each, _holder(each.slot, is_alone=len(service.workers) == 1)) for each in whole.untaken)
    yield f"{counted(whole.units.waiting, 'waiting unit')} with {counted(whole.units.stashed_envelopes, 'stashed envelope')}"
    for each in whole.oldest_waits[:1]:
        yield f"the longest wait: {each.unit} since {each.since}"
        yield f"  for {each.waits_for}, {wake_text(each.kind, each.until)}"
    read, sent, dead = whole.counts.get("records", 0), sum(whole.notifications.values()), sum(whole.dead_letters.values())
    yield f"records {read:,}, notifications {sent:,}, dead letters {dead:,} since the starts"
    yield from (f"{name} unavailable: {_units(units)} for it" for name, units in whole.unavailable.items())
    yield from (f"note: {each}" for each in whole.notes)


def on_one_screen(lines: Sequence[str]) -> list[str]:
    """Cut the lines to what a terminal of 80 columns and 24 rows shows above the next prompt; the last one then says so."""
    room = _HEIGHT - 2
    cut = [line if len(line) <= _WIDTH else f"{line[: _WIDTH - 1]}…" for line in lines]
    if cut == lines and len(lines) <= room:
        return cut
    shown = cut if len(cut) < room else cut[: room - 1]
    more = f"{counted(len(cut) - len(shown), 'line')} more and " if len(cut) > len(shown) else ""
    return [*shown, f"({more}whole lines: --verbose)"]
