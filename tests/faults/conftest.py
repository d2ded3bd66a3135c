"""Campaigns of faults: all of them with FAULTS=all, else short ones. SEARCH_SEED=N determines the moments of the strikes."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any, Protocol, TypeVar

import pytest
from harness.fault_table import AnyRow, as_property, render
from harness.nightly import SEED

from notification_service.simulator.receiver.behaviour import Behaviour
from servers.postgresql import PostgresqlServer
from servers.receiver import ReceiverServer
from tests.faults.campaign import Campaign
from tests.faults.delivery_campaign import DeliveryCampaign
from tests.faults.group_campaign import FileStage, GroupCampaign, TopicStage
from tests.faults.region_campaign import Region, RegionCampaign
from tests.faults.stage import Stage

IS_ALL = os.environ.get("FAULTS") == "all"
UNITS, RATE = ("250", "200/s") if IS_ALL else ("60", "150/s")
"""The size and the rate of each simulation. A campaign waits at its end for the last lines of a simulation."""

_Campaign = TypeVar("_Campaign", Campaign, GroupCampaign, RegionCampaign)


class Opens(Protocol):
    def __call__(self, fault: str, storage: str, *overrides: str, **options: Any) -> Any: ...


def pytest_itemcollected(item: pytest.Item) -> None:
    """A campaign without a short form is for the night."""
    marker = item.get_closest_marker("faults")
    if not IS_ALL and marker is not None and "short" not in {each for each, times in marker.kwargs.items() if times}:
        item.add_marker(pytest.mark.nightly("campaigns"))
        item.add_marker("slow")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the campaigns that neither `make nightly` nor `make test` has, unless FAULTS=all."""
    left_out = [each for each in items if not IS_ALL and _times(each) == 0]
    if left_out:
        items[:] = [each for each in items if each not in left_out]
        config.hook.pytest_deselected(items=left_out)


@pytest.fixture
def times(request: pytest.FixtureRequest) -> int:
    """How often to strike."""
    return _times(request.node) or 0


@pytest.fixture
def campaign(own_server: Callable[..., Any], tmp_path: Path, record_property: Callable[[str, object], None]) -> Opens:
    """A maker of campaigns. At the end of its context a campaign is drained, verified, recorded and judged.

    `overrides` are for the service. `arguments` are for the simulator, in addition to those of every campaign.
    """

    @contextmanager
    def begin(fault: str, storage: str, *overrides: str, arguments: tuple[str, ...] = (), **options: Any) -> Iterator[Campaign]:
        print(f"SEARCH_SEED={SEED}: {fault}, {storage}")
        chance = Random(f"{SEED}/{fault}/{storage}")
        stage = Stage(own_server, tmp_path, storage, chance, *overrides, **options)
        with _under_way(
            stage, lambda: Campaign(stage, fault, SEED, "--units", UNITS, "--rate", RATE, *arguments), record_property
        ) as campaign:
            yield campaign

    return begin


@pytest.fixture
def of_delivery(own_server: Callable[..., Any], tmp_path: Path, record_property: Callable[[str, object], None]) -> Any:
    """A maker of campaigns on delivery. At the end of its context the job is waited for, recorded and judged.

    `ledger` is `sqlite` or `postgresql`; `behaviour` is the receiver's.
    """

    @contextmanager
    def begin(fault: str, ledger: str, units: int, behaviour: Behaviour) -> Iterator[DeliveryCampaign]:
        print(f"SEARCH_SEED={SEED}: {fault}, {ledger}")
        postgresql = own_server(PostgresqlServer).start() if ledger == "postgresql" else None
        receiver = own_server(ReceiverServer, behaviour).start()
        campaign = DeliveryCampaign(fault, tmp_path, receiver, postgresql, units, SEED)
        try:
            campaign.begin()
            yield campaign
            row = campaign.finish()
            _tell(row, record_property)
            campaign.judge(row)
        finally:
            campaign.close()

    return begin


@pytest.fixture
def of_groups(own_server: Callable[..., Any], tmp_path: Path, record_property: Callable[[str, object], None]) -> Any:
    """A maker of campaigns on the payments of messages. At the end of its context all are counted, recorded and judged.

    `transport` is `kafka` or `file`. Simulations repeat the ids of messages, so one of `units` has to last until the last strike.
    """

    @contextmanager
    def begin(fault: str, transport: str, units: int) -> Iterator[GroupCampaign]:
        print(f"SEARCH_SEED={SEED}: {fault}, {transport}")
        chance = Random(f"{SEED}/{fault}/{transport}")
        stage = FileStage(tmp_path, chance) if transport == "file" else TopicStage(own_server, tmp_path, "redis", chance)
        with _under_way(
            stage, lambda: GroupCampaign(stage, fault, SEED, "--units", str(units), "--rate", RATE), record_property
        ) as campaign:
            yield campaign

    return begin


@pytest.fixture
def of_regions(own_server: Callable[..., Any], tmp_path: Path, record_property: Callable[[str, object], None]) -> Any:
    """A maker of campaigns on regions. At the end of its context everything is waited for, recorded and judged."""

    @contextmanager
    def begin(source: str, sinks: tuple[str, ...], *overrides: str) -> Iterator[RegionCampaign]:
        print(f"SEARCH_SEED={SEED}: {source} to {', '.join(sinks)}")
        chance = Random(f"{SEED}/{source}/{sinks}/{overrides}")
        region = Region(own_server, tmp_path, chance, source, sinks, *overrides)
        with _under_way(
            region, lambda: RegionCampaign(region, SEED, "--units", UNITS, "--rate", RATE), record_property
        ) as campaign:
            yield campaign

    return begin


@contextmanager
def _under_way(stage: Any, make: Callable[[], _Campaign], record_property: Callable[[str, object], None]) -> Iterator[_Campaign]:
    """Start the stage and a campaign on it; at the end of the context finish, record and judge it."""
    try:
        stage.start()
        campaign = make()
        try:
            campaign.begin()
            yield campaign
            row = campaign.finish()
        finally:
            campaign.give_up()
        _tell(row, record_property)
        campaign.judge(row)
    finally:
        stage.close()


def _tell(row: AnyRow, record_property: Callable[[str, object], None]) -> None:
    """Print the row, and keep it for the table at the end of the run."""
    print("\n".join(render([row])), flush=True)
    record_property(*as_property(row))


@pytest.fixture
def chance(request: pytest.FixtureRequest) -> Random:
    """The random numbers of the test itself."""
    return Random(f"{SEED}/{request.node.nodeid}")


def _times(item: pytest.Item) -> int | None:
    """Return how often the test strikes; None if it is no campaign."""
    marker = item.get_closest_marker("faults")
    return None if marker is None else marker.kwargs.get("all" if IS_ALL else "night", 0)
