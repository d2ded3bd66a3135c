"""The real process with lookups: releases are taken up while it runs, nothing is mixed, and a damaged one changes nothing."""

import json
from collections.abc import Callable

import pytest
from harness.processes.operated_service import EVENTS, FLOW, NOTIFICATION, OperatedService
from harness.published_lookups import NOW, publish, shaped
from harness.waiting import wait_until

from notification_service.lookups.directory import LookupsDirectory
from notification_service.lookups.shapes import ANY, CUSTOMERS, SETTINGS
from notification_service.supervision.exit_code import ExitCode

pytestmark = pytest.mark.slow

SOON = f"{NOTIFICATION}.lookups.check-every=100ms"


def publish_settings(directory: LookupsDirectory, text: str, now: int = NOW) -> str:
    """Publish a release in which every event's additional information is this text. Return its version."""
    rows = {(ANY, FLOW, event): ["ACCP", None, text, None] for event in EVENTS}
    return publish(directory, {SETTINGS: shaped(rows)}, now=now).version


def texts_and_versions(service: OperatedService) -> list[tuple[str, str | None]]:
    """Return each notification's text and the version that its header names."""
    found = []
    for each in service.notifications():
        value = each["value"] if isinstance(each["value"], dict) else json.loads(each["value"])
        status = value["CstmrPmtStsRpt"]["OrgnlPmtInfAndSts"][0]["TxInfAndSts"][0]
        text = status["StsRsnInf"][0]["AddtlInf"][0] if "StsRsnInf" in status else ""
        found.append((text, each["headers"].get("lookups-version")))
    return found


@pytest.fixture
def lookups(service: OperatedService) -> LookupsDirectory:
    """The directory where the service looks for lookups by default."""
    return LookupsDirectory(service.run_directory / "lookups")


def wait_for_version(service: OperatedService, version: str) -> None:
    service.wait_for_report(lambda report: report.lookups_version == version, f"lookups {version} are used")


def test_a_running_service_takes_the_first_release_up_and_every_other(
    service: OperatedService, lookups: LookupsDirectory
) -> None:
    service.start_and_wait(SOON)
    service.tell("uow-1", 1)
    service.wait_for("uow-1", 1)
    versions = []
    for number in (2, 3):
        versions.append(publish_settings(lookups, f"text {number}", NOW + number))
        wait_for_version(service, versions[-1])
        service.tell("uow-1", number)
        service.wait_for("uow-1", *range(1, number + 1))
    assert texts_and_versions(service) == [("", None), ("text 2", versions[0]), ("text 3", versions[1])]
    assert f"lookups {versions[0]}, the first" in service.log
    assert f"lookups {versions[1]}, after {versions[0]}" in service.log
    assert service.stop() == 0


def test_a_service_does_not_begin_with_a_damaged_release_and_says_how_to_go_on(
    service: OperatedService, lookups: LookupsDirectory
) -> None:
    """A running service keeps its release; the tests of `Follower` show that."""
    first, second = (publish_settings(lookups, text, NOW + number) for number, text in enumerate(("one", "two")))
    file = next(lookups.release(second).glob("*/*.mdb"))
    file.write_bytes(bytes(file.stat().st_size))
    refused = service.verb("run")
    assert refused.returncode == ExitCode.CONFIGURATION_REFUSED
    assert f"{file.name}: is damaged" in refused.stderr
    assert "roll back" in refused.stderr
    assert service.verb("lookups", "rollback", first).returncode == 0
    service.start_and_wait(SOON)
    wait_for_version(service, first)
    assert service.stop() == 0


def test_what_was_rolled_back_is_used_within_seconds(service: OperatedService, lookups: LookupsDirectory) -> None:
    first, second = (publish_settings(lookups, text, NOW + number) for number, text in enumerate(("one", "two")))
    service.start_and_wait(SOON)
    wait_for_version(service, second)
    done = service.verb("lookups", "rollback", first)
    assert (done.returncode, first in done.stdout) == (0, True), done.stderr
    wait_for_version(service, first)
    service.tell("uow-1", 1)
    service.wait_for("uow-1", 1)
    assert texts_and_versions(service) == [("one", first)]
    assert service.stop() == 0


def test_a_directory_that_is_named_must_hold_a_release(new_service: Callable[..., OperatedService]) -> None:
    service = new_service(f'{NOTIFICATION}.lookups.directory="nowhere"')
    refused = service.verb("run")
    assert refused.returncode == ExitCode.CONFIGURATION_REFUSED
    assert "nowhere: no release of lookups exists" in refused.stderr
    assert "make lookups" in refused.stderr


def test_the_orders_tell_what_is_there(service: OperatedService, lookups: LookupsDirectory) -> None:
    first, second = (publish_settings(lookups, text, NOW + number) for number, text in enumerate(("one", "two")))
    listed = service.verb("lookups", "list").stdout.splitlines()
    assert listed == [f"* {second}  {SETTINGS} {len(EVENTS)}", f"  {first}  {SETTINGS} {len(EVENTS)}"]
    service.start_and_wait(SOON)
    wait_for_version(service, second)
    assert service.verb("lookups").stdout.splitlines()[0] == f"* {second}  {SETTINGS} {len(EVENTS)}; worker 0 uses it"
    assert service.stop() == 0
    shown = service.verb("lookups", "show", SETTINGS, "", FLOW, EVENTS[0])
    assert (shown.returncode, "additional_information: two" in shown.stdout) == (0, True), shown.stderr
    as_json = json.loads(service.verb("lookups", "show", SETTINGS, "", FLOW, EVENTS[0], "--json").stdout)
    assert as_json["value"]["transaction_status"] == "ACCP"
    assert service.verb("lookups", "show", SETTINGS, "", FLOW, "Unheard").returncode == ExitCode.FAILED
    unknown = service.verb("lookups", "show", "customers", "party", "P1")
    assert (unknown.returncode, f"there are {SETTINGS}" in unknown.stderr) == (ExitCode.CONFIGURATION_REFUSED, True)
    missing = service.verb("lookups", "rollback", "20200101T000000000Z")
    assert (missing.returncode, f"the releases are: {second}, {first}" in missing.stderr) == (ExitCode.FAILED, True)


def test_an_account_is_shown_by_its_iban_in_whatever_case(service: OperatedService, lookups: LookupsDirectory) -> None:
    publish(lookups, {CUSTOMERS: shaped({("account", "GB82WEST12345698765432"): [None, None, "push", None, None]})})
    shown = service.verb("lookups", "show", CUSTOMERS, "account", "gb82west12345698765432")
    assert (shown.returncode, "channel: push" in shown.stdout) == (0, True), shown.stdout + shown.stderr


def test_nothing_is_mixed_while_releases_change_under_load(service: OperatedService, lookups: LookupsDirectory) -> None:
    """Each notification's text is that of the version which its header names."""
    texts = {publish_settings(lookups, "text 0"): "text 0"}
    service.start_and_wait(SOON)
    for number in range(1, 21):
        for unit in range(20):
            service.tell(f"uow-{number}-{unit}", 1, 2, 3)
        texts[publish_settings(lookups, f"text {number}", NOW + number)] = f"text {number}"
    wait_for_version(service, max(texts))
    service.tell("uow-last", 1)
    wait_until(lambda: len(texts_and_versions(service)) == 20 * 20 * 3 + 1, "all have left")
    found = texts_and_versions(service)
    assert all(version is not None and texts[version] == text for text, version in found)
    assert found[-1] == ("text 20", max(texts))
    assert service.stop() == 0
