"""Who may read what a service has made: the table of docs/operations.md, and each file of the run directory after all has run."""

import os
import re
from collections.abc import Callable, Iterator
from fnmatch import fnmatchcase
from pathlib import Path

import httpx
import pytest
from harness.processes.operated_daemon import Daemon
from harness.processes.operated_service import NOTIFICATION, RESEQUENCER
from harness.waiting import DEADLINE_SECONDS, wait_until

from servers.receiver import ReceiverServer
from storage.private_file import _DIRECTORIES, _FILES

pytestmark = pytest.mark.slow

_PAGE = Path("docs/operations.md").read_text(encoding="utf-8")


def rows() -> Iterator[tuple[int, list[str]]]:
    """Return the rights of each row of the table, and the patterns of its files. The umask of the test takes nothing away."""
    table = _PAGE.partition("Who may read them:\n\n")[2].partition("\n\n")[0]
    for _, rights, files, _ in (line.split("|") for line in table.splitlines()[2:]):
        octal = re.search(r"`(0\d+)`", rights)
        yield int(octal[1], 8) if octal else 0o666, re.findall(r"`([^`]+)`", files)


def test_the_table_has_what_is_narrowed() -> None:
    private = next(iter(rows()))
    assert private == (0o600, list(_FILES))
    assert set(re.findall(r"`([^`]+)`", _PAGE.partition("their directories ")[2].partition(" have `0700`")[0])) == set(
        _DIRECTORIES
    )


def expected_rights(path: Path, table: list[tuple[int, list[str]]]) -> int | None:
    def is_like(pattern: str) -> bool:
        parts = pattern.split("/")
        return len(parts) == len(path.parts) and all(map(fnmatchcase, path.parts, parts))

    return next((rights for rights, patterns in table if any(map(is_like, patterns))), None)


@pytest.fixture
def no_umask() -> Iterator[None]:
    """What is private is so by itself."""
    before = os.umask(0)
    yield
    os.umask(before)


def test_after_everything_ran_each_file_has_the_rights_of_the_table(
    new_daemon: Callable[..., Daemon], receiver: ReceiverServer, no_umask: None
) -> None:
    daemon = new_daemon(
        f"{NOTIFICATION}.aggregation.enabled=true",
        f"{NOTIFICATION}.orders.enabled=true",
        f"{NOTIFICATION}.http.port=0",
        f"{NOTIFICATION}.http.probes.port=0",
        f"{NOTIFICATION}.delivery.worker.count=1",
        f'{NOTIFICATION}.delivery.receivers {{ tracker {{ url = "{receiver.url}" }} }}',
        f"{RESEQUENCER}.stash-timeout=1s",
    )
    service, run_directory = daemon.service, daemon.service.run_directory
    made_before = run_directory / "status-7.json"
    run_directory.mkdir(parents=True)
    made_before.touch(0o666)
    daemon.start()
    simulated = service.verb("simulate", "--units", "20", "--seed", "4", "--garbage", "10%", "--losses", "2%")
    assert simulated.returncode == 0, simulated.stderr
    assert service.verb("partitions", "pause", "IPF_PROCESSING_DATA-0", "--because", "a test").returncode == 0
    assert service.verb("partitions", "resume", "IPF_PROCESSING_DATA-0", "--because", "a test").returncode == 0
    followed = service.verb("verify", "--follow", "--give-up-after", "60s")
    assert followed.returncode == 0, followed.stdout + followed.stderr
    pattern = r"console: +(http://[\d.:]+)"
    console = wait_until(lambda: re.search(pattern, service.verb("status").stdout), "the console")
    wait_until(lambda: (run_directory / "console.db").exists(), "the console copies what waits")
    assert httpx.get(f"{console[1]}/groups", timeout=DEADLINE_SECONDS).status_code == 200
    wait_until(lambda: list((run_directory / "groups/payments/console").glob("index.db*")), "the console has an index of groups")
    wait_until(lambda: (run_directory / "console-history.db").exists(), "the console keeps sums")
    assert service.verb("archive").returncode == 0
    _compare(run_directory)
    assert service.verb("stop").returncode == 0
    _compare(run_directory)


def _compare(run_directory: Path) -> None:
    table, wrong = list(rows()), []
    for path in sorted(run_directory.rglob("*")):
        name = path.relative_to(run_directory)
        found = path.stat().st_mode & 0o777
        if path.is_dir():
            is_private = any(fnmatchcase(str(name), pattern) for pattern in _DIRECTORIES)
            if found != (0o700 if is_private else 0o777):
                wrong.append(f"{name}/ has {found:o}")
        elif (expected := expected_rights(name, table)) != found:
            wrong.append(f"{name} has {found:o}, the table {expected and f'{expected:o}'}")
    assert not wrong
