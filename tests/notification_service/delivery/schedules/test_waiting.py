"""Requests for a receiver that takes nothing: all of them wait, or of each key the newest that was never called."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from harness.ledger_stage import LedgerStage, item
from harness.receivers import receiver

from notification_service.configuration.configuration import load
from notification_service.delivery.core.answers import Suspended
from notification_service.delivery.core.jobs import Claim
from notification_service.delivery.ledger import intake
from notification_service.delivery.schedules.runner import ScheduleRunner
from notification_service.delivery.schedules.settings import Waiting
from notification_service.delivery.schedules.sink import LedgerSink
from resequencer.errors import ConfigurationError
from tests.notification_service.delivery.schedules.sinks import HOUR_MS, Worlds, runner

JOB = "schedule-hourly"
ON_KAFKA = ("ipf.processing-data.ingress.transport = kafka", "payment-status-notification.transport = kafka")


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)])
def it(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[LedgerStage]:
    url = f"sqlite:///{tmp_path}/ledger.db" if request.param == "sqlite" else request.getfixturevalue("migrated_database")
    stage = LedgerStage(url, receiver("suspension { probe = 1s, most = 1s }"))
    yield stage
    stage.close()


class Hours:
    """A schedule that ticks each hour, for some keys."""

    def __init__(self, it: LedgerStage, waiting: Waiting, *keys: str) -> None:
        self.clock, self.keys = Worlds(), keys
        self.runner = self.new_worker(it, waiting)
        self.runner.look(lambda: False)
        self.clock.advance(1_000)

    def new_worker(self, it: LedgerStage, waiting: Waiting) -> ScheduleRunner:
        self.runner = runner(self.clock, LedgerSink(it.ledger, "hourly", "r", "w", waiting), self.keys)
        return self.runner

    def tick(self, count: int = 1) -> None:
        for _ in range(count):
            self.runner.look(lambda: False)
            self.clock.advance(HOUR_MS)


def shown(claims: list[Claim]) -> list[tuple[str, str, str | None]]:
    """Return key, hour of the tick, and for how many requests each stands."""
    found = []
    for each in claims:
        headers = {name: value.decode() for name, value in each.headers}
        found.append((each.key, headers["schedule-tick"][11:13], headers.get("schedule-requests")))
    return sorted(found)


def drain(it: LedgerStage) -> list[tuple[str, str, str | None]]:
    found = []
    while claims := it.claim():
        found += shown(claims)
        it.finish(claims)
    return found


def test_all_requests_wait_and_come_in_their_order(it: LedgerStage) -> None:
    Hours(it, Waiting.ALL, "a").tick(3)
    assert drain(it) == [("a", "12", None), ("a", "13", None), ("a", "14", None)]


def test_the_newest_request_of_a_key_stands_for_those_that_were_never_called(it: LedgerStage) -> None:
    hours = Hours(it, Waiting.NEWEST, "a", "b")
    hours.tick(4)
    job = it.job(JOB)
    assert (job.ingested, job.open, job.cancelled) == (8, 2, 6)
    assert drain(it) == [("a", "15", "4"), ("b", "15", "4")]
    hours.tick()
    assert drain(it) == [("a", "16", None), ("b", "16", None)]
    job = it.job(JOB)
    assert job.ingested == job.processed + job.cancelled == 10


def test_a_request_that_was_called_stays_and_goes_first(it: LedgerStage) -> None:
    hours = Hours(it, Waiting.NEWEST, "a")
    hours.tick()
    it.finish(it.claim(), Suspended("HTTP 503"))
    hours.tick(3)
    it.now += 1_000
    assert drain(it) == [("a", "12", None), ("a", "15", "3")]


def test_a_request_that_is_being_called_stays(it: LedgerStage) -> None:
    hours = Hours(it, Waiting.NEWEST, "a")
    hours.tick()
    claims = it.claim()
    hours.tick(2)
    assert it.finish(claims).taken == 1
    assert drain(it) == [("a", "14", "2")]


def test_rows_of_other_jobs_of_the_key_stay(it: LedgerStage) -> None:
    it.take(item("a", 1))
    Hours(it, Waiting.NEWEST, "a").tick(2)
    assert it.deliver_all()[0] == "a-1"
    assert (it.job().processed, it.job(JOB).cancelled) == (1, 1)


def test_a_tick_that_is_stored_again_replaces_nothing(it: LedgerStage) -> None:
    """As a worker does it whose answer was lost."""
    hours = Hours(it, Waiting.NEWEST, "a")
    hours.tick()
    before = it.ledger.open_intake(JOB, "w")
    assert before is not None
    hours.tick()
    opened = it.ledger.open_intake(JOB, "w")
    assert opened is not None
    (claim,) = it.claim()
    again = intake.Item(claim.notification_id, claim.key, claim.value, claim.headers, "p", claim.notification_id)
    assert it.ledger.take_in(opened, "r", intake.Portion([again], {}, replaces=True)) == 0
    it.finish([claim])
    assert (it.job(JOB).cancelled, it.job(JOB).open) == (1, 0)


def test_a_pile_of_before_ends_some_at_a_time_and_no_request_is_counted_twice(
    it: LedgerStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(intake, "_MAX_REPLACED", 3)
    hours = Hours(it, Waiting.ALL, "a")
    hours.tick(5)
    hours.new_worker(it, Waiting.NEWEST)
    hours.tick(3)
    found = drain(it)
    assert found[-1][:2] == ("a", "19")
    assert sum(int(requests or 1) for _, _, requests in found) == 8


def test_a_pile_is_a_problem_of_the_schedule_until_it_is_gone(it: LedgerStage) -> None:
    hours = Hours(it, Waiting.ALL, "a", "b")
    hours.tick(2)
    assert (hours.runner.report().problem, hours.runner.report().waiting) == (None, 4)
    hours.tick()
    report = hours.runner.report()
    assert (report.waiting, report.ticks_waiting) == (6, 3)
    assert report.problem is not None
    assert report.problem.startswith("6 requests of 3 ticks wait for r, and each tick adds to them")
    drain(it)
    hours.tick()
    assert hours.runner.report().problem is None


def test_newest_is_refused_for_a_topic_whose_records_cannot_be_taken_back() -> None:
    schedule = "payment-status-notification.delivery.schedules.hourly"
    keys = {"cron": '"0 * * * *"', "keys.names": "[a]", "topic": "T", "waiting": "newest"}
    with pytest.raises(
        ConfigurationError, match=r"hourly\.waiting: is newest, which needs receiver: a record of a topic cannot be taken back"
    ):
        load(Path("conf/application.conf"), [*ON_KAFKA, *(f"{schedule}.{key} = {value}" for key, value in keys.items())])
