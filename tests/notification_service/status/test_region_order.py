"""An order to reset a region: read once, by the service that it is for, and never lost unread."""

import os
from pathlib import Path

from msgspec.structs import replace

from notification_service.status.sink_attributes import RegionOrder, RegionOrderFile, RegionProposalFile


def order(name: str, service: int = 7) -> RegionOrder:
    return RegionOrder(service, name, "anna", is_forced=False)


def test_an_order_is_taken_once(tmp_path: Path) -> None:
    file = RegionOrderFile(tmp_path, 0)
    file.give(order("a"))
    assert [file.take(7), file.take(7)] == [order("a"), None]
    assert list(tmp_path.iterdir()) == []


def test_a_newer_order_replaces_one_that_was_not_read(tmp_path: Path) -> None:
    file = RegionOrderFile(tmp_path, 0)
    file.give(order("a"))
    file.give(order("b"))
    assert [file.take(7), file.take(7)] == [order("b"), None]


def test_an_order_that_is_given_while_another_is_taken_stays(tmp_path: Path, monkeypatch) -> None:
    file, replace = RegionOrderFile(tmp_path, 0), os.replace
    file.give(order("a"))

    def take_away(source: Path, target: Path) -> None:
        monkeypatch.setattr(os, "replace", replace)
        replace(source, target)
        file.give(order("b"))

    monkeypatch.setattr(os, "replace", take_away)
    assert [file.take(7), file.take(7)] == [order("a"), order("b")]


def test_an_order_for_an_earlier_service_is_removed_and_not_obeyed(tmp_path: Path) -> None:
    file = RegionOrderFile(tmp_path, 0)
    file.give(order("a", service=6))
    assert file.take(7) is None
    assert list(tmp_path.iterdir()) == []


def test_an_order_for_the_initial_state_stays_until_it_is_ended_whichever_service_it_was_for(tmp_path: Path) -> None:
    file, initial = RegionOrderFile(tmp_path, 0), replace(order("a"), to_initial=True)
    file.give(initial)
    assert file.find_begun() is None
    assert (file.take(7), file.take(7)) == (initial, None)
    again = RegionOrderFile(tmp_path, 0)
    assert again.find_begun() == initial
    again.end()
    assert again.find_begun() is None


def test_an_order_that_only_asks_does_not_stay(tmp_path: Path) -> None:
    file = RegionOrderFile(tmp_path, 0)
    file.give(replace(order("a"), to_initial=True, is_dry_run=True))
    assert file.take(7) is not None
    assert list(tmp_path.iterdir()) == []


def test_an_ordinary_reset_that_was_taken_is_not_continued(tmp_path: Path) -> None:
    file = RegionOrderFile(tmp_path, 0)
    file.give(order("a"))
    (tmp_path / "region-order-0.json").rename(tmp_path / "region-order-0.taken")
    assert file.find_begun() is None


def test_a_proposal_is_of_its_service_and_is_no_order(tmp_path: Path) -> None:
    proposals = RegionProposalFile(tmp_path, 0)
    proposals.give(order("a"))
    assert (proposals.find(7), proposals.find(8), RegionOrderFile(tmp_path, 0).take(7)) == (order("a"), None, None)
    proposals.remove()
    assert proposals.find(7) is None
