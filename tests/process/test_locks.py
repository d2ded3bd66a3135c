"""Several services on one machine: side by side, but never two on the same directory."""

from collections.abc import Callable
from pathlib import Path

import pytest
from harness.processes.operated_service import INGRESS, NOTIFICATION, OperatedService
from harness.waiting import DEADLINE_SECONDS

pytestmark = pytest.mark.slow

NewService = Callable[..., OperatedService]


def test_a_second_service_on_a_run_directory_is_refused_and_names_the_first(new_service: NewService, tmp_path: Path) -> None:
    first, second = new_service(), new_service()
    second.log_file = tmp_path / "second.log"
    first.start_and_wait()
    assert first.process is not None
    second.start()
    assert second.wait() == 1
    assert second.log.startswith("resequencer: ")
    assert second.log.count("\n") == 1
    assert str(first.run_directory) in second.log
    assert f"process id {first.process.pid};" in second.log
    first.tell("uow-1", 1)
    first.wait_for("uow-1", 1)
    assert first.stop() == 0


def test_the_directory_is_free_again_when_its_holder_was_killed(new_service: NewService) -> None:
    first = new_service().start_and_wait()
    first.kill()
    second = new_service().start_and_wait()
    assert second.stop() == 0


def test_asking_for_the_status_all_the_time_does_not_keep_a_service_from_starting(service: OperatedService) -> None:
    service.run_directory.mkdir(parents=True)
    asking = [service.begin_verb("status") for _ in range(3)]
    service.start_and_wait()
    for each in asking:
        each.wait(DEADLINE_SECONDS)
    assert service.stop() == 0


def test_two_configurations_run_side_by_side(new_service: NewService, tmp_path: Path) -> None:
    for name in ("one", "two"):
        text = f'include "application.conf"\n{NOTIFICATION}.transport = file\nipf.processing-data.ingress.transport = file\n'
        text += f"{NOTIFICATION}.resequencer {{ storage-type = embedded, strategy = SEQUENCE }}\n"
        (tmp_path / f"{name}.conf").write_text(text.partition("\n")[2], encoding="utf-8")
    services = [new_service(config="one.conf"), new_service(config="two.conf")]
    for each in services:
        each.start_and_wait()
    for number, each in enumerate(services):
        each.tell(f"uow-{number}", 2, 1)
    for number, each in enumerate(services):
        each.wait_for(f"uow-{number}", 1, 2)
        assert {line["key"] for line in each.notifications()} == {f"uow-{number}"}
    assert [each.stop() for each in services] == [0, 0]


def test_two_run_directories_with_one_output_directory_are_refused(new_service: NewService, tmp_path: Path) -> None:
    out = f'{NOTIFICATION}.file.directory="{tmp_path}/shared"'
    (tmp_path / "alias").symlink_to(tmp_path / "shared")
    first = new_service(out, f"{NOTIFICATION}.run-directory=run/application").start_and_wait()
    second = new_service(f'{NOTIFICATION}.file.directory="{tmp_path}/alias"', f"{NOTIFICATION}.run-directory=run/other")
    second.log_file = tmp_path / "second.log"
    second.start()
    assert second.wait() == 1
    assert f"{tmp_path}/shared: in use by the service with process id" in second.log
    assert first.stop() == 0


def test_two_run_directories_with_one_input_directory_are_refused(new_service: NewService, tmp_path: Path) -> None:
    """This also holds for an empty directory, and for another name of the same directory."""
    (tmp_path / "alias").symlink_to(tmp_path / "shared")
    first = new_service(f'{INGRESS}.file.directory="{tmp_path}/shared"').start_and_wait()
    assert first.process is not None
    others = (f'{INGRESS}.file.directory="{tmp_path}/alias"', f"{NOTIFICATION}.run-directory=run/other")
    second = new_service(*others)
    for verb in ("run", "start"):
        refused = second.verb(verb)
        assert refused.returncode == 1
        assert f"{tmp_path}/shared: in use by the service with process id {first.process.pid}; stop it" in refused.stderr
    assert list((tmp_path / "shared").iterdir()) == []
    first.kill()
    second.run_directory = tmp_path / "run" / "other"
    assert second.start_and_wait().stop() == 0


def test_an_output_directory_that_is_the_run_directory_under_another_name_does_not_lock_itself_out(
    new_service: NewService, tmp_path: Path
) -> None:
    service = new_service(f'{NOTIFICATION}.file.directory="{tmp_path}/run/../run/application"')
    service.start_and_wait()
    assert service.stop() == 0


def test_two_run_directories_with_one_database_are_refused_but_two_databases_may_lie_side_by_side(
    new_service: NewService, tmp_path: Path
) -> None:
    (tmp_path / "fast").mkdir()
    first = new_service(f"{NOTIFICATION}.storage.embedded.file=fast/one.db").start_and_wait()
    other = f"{NOTIFICATION}.run-directory=run/other"
    refused = new_service(other, f"{NOTIFICATION}.storage.embedded.file=fast/../fast/one.db").verb("run")
    assert refused.returncode == 1
    assert f"{tmp_path}/fast/one.db: in use by the service with process id" in refused.stderr
    second = new_service(other, f"{NOTIFICATION}.storage.embedded.file=fast/two.db")
    second.run_directory = tmp_path / "run" / "other"
    assert second.start_and_wait().stop() == 0
    assert first.stop() == 0
