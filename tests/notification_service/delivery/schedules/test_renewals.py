"""The subscription renewal of docs/delivery.md: a rare schedule, and a provider that is away for a while."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from harness.published_lookups import publish, shaped
from harness.scripted_receiver import OK, Reply, ScriptedReceiver, scripted_receiver

from notification_service.configuration.configuration import load
from notification_service.delivery.schedules.keys import make_keys
from notification_service.delivery.schedules.runner import ScheduleRunner
from notification_service.delivery.settings import DeliverySettings
from notification_service.lookups.directory import LookupsDirectory
from resequencer.clock import instant_of, instant_text
from tests.notification_service.delivery.schedules.sinks import Worlds

if TYPE_CHECKING:
    from tests.notification_service.delivery.direct.stage import DirectStage

pytestmark = pytest.mark.slow
DELIVERY = "payment-status-notification.delivery"
ON_KAFKA = ("ipf.processing-data.ingress.transport = kafka", "payment-status-notification.transport = kafka")
SHORTER = ("provider.retry { first = 50ms, most = 400ms }", "provider.suspension { probe = 100ms, most = 400ms }")
CUSTOMERS = [f"customer-{number}" for number in range(12)]
MONTHS = ("2026-03-01T05:00:00.000Z", "2026-04-01T04:00:00.000Z", "2026-05-01T04:00:00.000Z")


@pytest.fixture
def documented(tmp_path: Path) -> DeliverySettings:
    """The configuration as the page has it, with shorter times."""
    page = Path("docs/delivery.md").read_text(encoding="utf-8").partition("### A subscription renewal")[2]
    block = re.search(r"```hocon\n(.*?)```", page, re.DOTALL)
    assert block is not None
    file = tmp_path / "renewals.conf"
    file.write_text(block[1].replace('include "application.conf"', f'include "{Path("conf/application.conf").absolute()}"'))
    return load(file, [*ON_KAFKA, *(f"{DELIVERY}.receivers.{each}" for each in SHORTER)]).delivery


@pytest.fixture
def provider() -> Iterator[ScriptedReceiver]:
    with scripted_receiver() as receiver:
        yield receiver


@pytest.fixture
def stage(direct_stage: Callable[..., DirectStage], provider: ScriptedReceiver, documented: DeliverySettings) -> DirectStage:
    (_, receiver), *_ = documented.receivers
    return direct_stage(provider.url, receiver)


def test_each_customer_is_renewed_once_a_month_and_in_order_although_the_provider_is_away(
    stage: DirectStage, provider: ScriptedReceiver, documented: DeliverySettings, tmp_path: Path
) -> None:
    from notification_service.delivery.published_topics import TopicSink

    rows = {("party", name): [None, None, "SUBSCRIPTION" if name != "customer-3" else "PAPER", None, None] for name in CUSTOMERS}
    lookups = LookupsDirectory(tmp_path / "lookups")
    publish(lookups, {"customers": shaped(rows)}, 3)
    ((_, schedule),) = documented.schedules
    clock = Worlds()
    clock.at = instant_of(MONTHS[0]) - 3_600_000
    sink = TopicSink(stage.settings(stage.stages[0], "schedule"), "renewals", stage.source, f"{stage.group}-schedule")
    runner = ScheduleRunner("renewals", schedule, make_keys(schedule.keys, lookups), sink, clock.steady())
    wanted = {(name, month) for name in CUSTOMERS if name != "customer-3" for month in MONTHS}
    with closing(runner):
        runner.look(lambda: False)
        # In March the provider is asleep; in April it fails for some customers, in turn; in May it answers again.
        provider.answers = lambda _key, _id, _nth: Reply(503)
        stage.worker()
        for month in MONTHS[:2]:
            clock.advance(instant_of(month) - clock.at)
            runner.look(lambda: False)
        stage.wait(lambda: len(provider.calls) >= 2, "the provider is asked")
        assert provider.taken == []
        provider.answers = lambda key, _id, nth: Reply(500) if int(key.rpartition("-")[2]) % 4 == 0 and nth < 5 else OK
        clock.advance(instant_of(MONTHS[2]) - clock.at)
        runner.look(lambda: False)
        stage.wait(lambda: len(set(provider.taken)) == len(wanted), "all renewals")
    of_id = {id_: (key, instant_text(tick)) for key, tick, id_ in requests(stage)}
    assert set(of_id.values()) == wanted
    assert len(provider.taken) == len(wanted)
    for name in CUSTOMERS:
        assert [of_id[each][1] for each in provider.ids(name)] == [month for month in MONTHS if (name, month) in wanted]
    assert stage.dead_letters() == []


def requests(stage: DirectStage) -> list[tuple[str, int, str]]:
    """Return key, tick and idempotency key of each request on the topic."""
    found = []
    for each in stage.read(stage.source):
        headers = {name: value.decode() for name, value in each.headers}
        found.append((each.key.decode(), instant_of(headers["schedule-tick"]), headers["delivery-id"]))
    return found
