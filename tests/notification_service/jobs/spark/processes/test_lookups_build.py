"""`resequencer lookups build` as an operator runs it: the shipped sources, a running service, and a job that is killed."""

import pytest
from harness.processes.operated_service import NOTIFICATION, OperatedService
from harness.waiting import wait_until

from notification_service.lookups.directory import LookupsDirectory
from notification_service.lookups.shapes import INSTITUTIONS, SETTINGS

SOON = f"{NOTIFICATION}.lookups.check-every=100ms"
LONGEST_WAIT_SECONDS = 600


def test_the_shipped_sources_are_built_and_a_running_service_uses_them(service: OperatedService) -> None:
    lookups = LookupsDirectory(service.run_directory / "lookups")
    service.start_and_wait(SOON)
    built = service.verb("lookups", "build", seconds=LONGEST_WAIT_SECONDS)
    assert (built.returncode, "WARN" in built.stderr, "Spark" in built.stderr) == (0, False, False), built.stderr
    version = lookups.get_current().version
    assert f"Published {version}" in built.stdout
    assert "bank-registry" in built.stdout
    service.wait_for_report(lambda report: report.lookups_version == version, "the new lookups are used")

    shown = service.verb("lookups", "show", INSTITUTIONS, "bank", "DE", "37040044")
    assert "bic: COBADEFFXXX" in shown.stdout, shown.stderr

    assert service.verb("simulate", "--units", "20", "--seed", "7").returncode == 0
    service.wait_until_idle()
    assert {each["headers"]["lookups-version"] for each in service.notifications()} == {version}
    verified = service.verb("verify")
    assert verified.returncode == 0, verified.stdout + verified.stderr

    assert service.stop() == 0
    rolled_back = service.verb("lookups", "rollback", version)
    assert rolled_back.returncode == 0, rolled_back.stderr


@pytest.mark.nightly("jobs")
def test_a_job_that_is_killed_while_it_writes_changes_nothing(service: OperatedService) -> None:
    lookups = LookupsDirectory(service.run_directory / "lookups")
    built = service.verb("lookups", "build", seconds=LONGEST_WAIT_SECONDS)
    assert built.returncode == 0, built.stderr
    version = lookups.get_current().version
    killed = service.begin_verb("lookups", "build")
    log = service.directory / "lookups.log"
    wait_until(lambda: f"{SETTINGS}: writing" in log.read_text(), "the job writes", LONGEST_WAIT_SECONDS)
    killed.kill()
    killed.wait()
    assert lookups.get_current().version == version
    assert lookups.versions() == [version]
