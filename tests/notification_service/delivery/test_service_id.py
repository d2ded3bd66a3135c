"""The id of a service's run directory: made once, durable, the same wherever the directory is."""

import stat
from pathlib import Path

import pytest

from notification_service.configuration.configuration import load
from notification_service.delivery.ledger.services import Service
from notification_service.wiring.delivery_sources import find_service, live_source
from resequencer.errors import ConfigurationError

KEYS = "payment-status-notification"


def configuration(tmp_path: Path, run_directory: Path, more: str = "") -> Path:
    path = tmp_path / "service.conf"
    path.write_text(f"""
        include "{Path("conf/application.conf").absolute()}"
        {KEYS} {{ run-directory = "{run_directory}", delivery.receivers.tracker.url = "http://127.0.0.1:1" }}
        {more}
    """)
    return path


SHARED = f'{KEYS}.delivery.ledger.url = "postgresql://ledger.example/l"'


def test_a_run_directory_has_one_id_also_when_it_is_moved_and_no_other_has_it(tmp_path: Path) -> None:
    run, moved = tmp_path / "run", tmp_path / "moved"
    first = find_service(load(configuration(tmp_path, run, SHARED)))
    assert find_service(load(configuration(tmp_path, run, SHARED))) == first
    assert stat.S_IMODE((run / "service-id").stat().st_mode) == 0o600
    run.rename(moved)
    again = find_service(load(configuration(tmp_path, moved, SHARED)))
    assert again.id == first.id
    assert again.home != first.home
    assert find_service(load(configuration(tmp_path, run))).id != first.id


def test_the_live_source_of_a_shared_ledger_is_named_by_the_id(tmp_path: Path) -> None:
    shared = load(configuration(tmp_path, tmp_path / "run", SHARED))
    service = find_service(shared)
    source, former = live_source(shared, service)
    assert source == f"live:{service.id}"
    assert former is not None
    assert former.source.endswith(f":{tmp_path}/run/out/notifications.jsonl")
    own = load(configuration(tmp_path, tmp_path / "run"))
    assert live_source(own, service) == ("live", None)
    assert find_service(own) == Service(service.id), "a copy of the directory has a ledger of its own"


def test_an_id_that_a_crash_has_torn_is_made_anew_and_another_content_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "run" / "service-id"
    file.parent.mkdir()
    file.write_text("12ab")
    assert len(find_service(load(configuration(tmp_path, tmp_path / "run"))).id) == 32
    file.write_text("this is what somebody has written into it\n")
    with pytest.raises(ConfigurationError, match="service-id: has no id of 32 hexadecimal digits: put back"):
        find_service(load(configuration(tmp_path, tmp_path / "run")))
