"""What is added to the project itself, as the recipes say: to a copy of it, which is then used."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from harness.processes.operated_service import NOTIFICATION, RESEQUENCER, OperatedService, envelope_line
from harness.recipes import Recipe, copied_checkout

from notification_service.delivery.ledger.database import VERSION

pytestmark = pytest.mark.slow

SEND = """
import sys
from pathlib import Path
from tests.notification_service.connectors.test_tables import TableHarness

harness = TableHarness(Path(sys.argv[1]))
harness.send(harness.partitions[0], *[each.encode() for each in sys.argv[2:]])
"""
SHOW_LEFT = """
import sys
from pathlib import Path
from guardian.ports import Channel
from tests.notification_service.connectors.test_tables import TableHarness

for each in TableHarness(Path(sys.argv[1])).left(Channel.NOTIFICATIONS):
    print(dict(each.headers)["envelope-id"].decode())
"""
NewService = Callable[..., OperatedService]


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    return copied_checkout(tmp_path)


def run(checkout: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", *arguments]
    return subprocess.run(command, cwd=checkout, capture_output=True, text=True, timeout=300, check=False)


def run_tests(checkout: Path, *arguments: str) -> str:
    # The full number of examples is tried where the tests belong.
    done = run(checkout, "pytest", "-q", "-p", "no:cacheprovider", "--hypothesis-profile", "quick", *arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def replace_printed_rows(checkout: Path) -> None:
    """Put each row of docs/configuration.md that a test prints in the place of the row of the same key."""
    refused = run(
        checkout, "pytest", "-q", "-p", "no:cacheprovider", "tests/notification_service/configuration/test_documentation.py"
    )
    table = checkout / "docs" / "configuration.md"
    text = table.read_text(encoding="utf-8")
    printed = dict.fromkeys(re.findall(r"^E +(\| `.*\|)$", refused.stdout, re.MULTILINE))
    new = {row.split(" | ")[0]: row for row in printed if row not in text}
    assert new, refused.stdout
    rows = [new.get(line.split(" | ")[0], line) for line in text.splitlines()]
    table.write_text("\n".join([*rows, ""]), encoding="utf-8")


def run_tests_of_documents(checkout: Path) -> None:
    """Run what compares the documents with the code: after a recipe it holds as before."""
    configuration = [f"tests/notification_service/configuration/{name}.py" for name in ("test_documentation", "test_keys")]
    run_tests(checkout, "-m", "not slow", "tests/docs/test_contract.py", *configuration)


def run_program(checkout: Path, program: str, *arguments: str) -> str:
    command, environment = [sys.executable, "-c", program, *arguments], {"PYTHONPATH": ".:tests"}
    return subprocess.run(command, cwd=checkout, env=environment, capture_output=True, text=True, check=True).stdout


def test_the_storage_passes_its_contract_and_keeps_what_waits_over_a_restart(checkout: Path, new_service: NewService) -> None:
    Recipe("a storage").follow(checkout)
    replace_printed_rows(checkout)
    run_tests_of_documents(checkout)
    assert " passed" in run_tests(checkout, "tests/storage/test_whole_file.py")
    service = new_service(checkout, f"{RESEQUENCER}.storage-type=whole-file")
    service.tell("uow-1", 2)
    service.start_and_wait()
    service.wait_for_report(lambda report: report.units.waiting == 1, "it waits")
    assert service.stop() == 0
    assert (service.run_directory / "state.msgpack").is_file()
    service.tell("uow-1", 1)
    service.start_and_wait()
    service.wait_for("uow-1", 1, 2)
    assert service.stop() == 0


def test_the_transport_passes_its_contract_and_a_service_works_on_it(checkout: Path, new_service: NewService) -> None:
    Recipe("a transport").follow(checkout)
    replace_printed_rows(checkout)
    run_tests_of_documents(checkout)
    assert " passed" in run_tests(checkout, "tests/notification_service/connectors/test_tables.py")
    service = new_service(checkout, f"{NOTIFICATION}.transport=tables", "ipf.processing-data.ingress.transport=tables")
    database = str(service.run_directory / "records.db")
    run_program(checkout, SEND, database, *[json.dumps(json.loads(envelope_line("uow-1", each))["value"]) for each in (2, 1)])
    service.start_and_wait()
    service.wait_for_report(lambda report: report.counts.get("handled", 0) == 2, "both are handled")
    assert service.stop() == 0
    assert run_program(checkout, SHOW_LEFT, database).split() == ["uow-1#1", "uow-1#2"]


def test_the_command_is_in_the_help_and_ends_with_its_exit_code(checkout: Path) -> None:
    before = run(checkout, "notification_service", "places")
    assert (before.returncode, "invalid choice: 'places'" in before.stderr) == (2, True)
    Recipe("a command").follow(checkout)
    run_tests_of_documents(checkout)
    assert "say where this configuration reads and writes" in run(checkout, "notification_service", "--help").stdout
    nothing_there = run(checkout, "notification_service", "places", "--json")
    assert (nothing_there.returncode, nothing_there.stderr) == (1, "")
    answer = json.loads(nothing_there.stdout)
    assert answer["run"] == str(checkout / "run" / "application")
    for each in answer.values():
        Path(each).mkdir(parents=True, exist_ok=True)
    there = run(checkout, "notification_service", "places")
    assert (there.returncode, there.stdout.splitlines()[0]) == (0, f"run: {answer['run']}")
    refused = run(checkout, "notification_service", "places", "--set", f"{NOTIFICATION}.handlr=x")
    assert (refused.returncode, refused.stdout, refused.stderr.count("\n")) == (3, "", 1)


def test_the_metric_is_in_the_status(checkout: Path, new_service: NewService) -> None:
    Recipe("a metric").follow(checkout)
    run_tests(checkout, "tests/docs/test_docs.py", "-k", "told_of_every")
    run_tests_of_documents(checkout)
    service = new_service(checkout)
    service.tell("uow-1", 1, 2)
    service.append(envelope_line("uow-2", 1).replace(b"PaymentReceived", b"Unknown"))
    service.start_and_wait()
    service.wait_for_report(lambda report: report.counts.get("handled", 0) == 3, "all of it is handled")
    counts = msgspec.json.decode(service.verb("status", "--json").stdout)["counts"]
    assert service.stop() == 0
    assert (counts["silent"], counts["handled"]) == (1, 3)


def test_the_key_is_missed_in_the_table_which_a_test_prints_and_then_it_is_configured(checkout: Path) -> None:
    Recipe("a configuration key").follow(checkout)
    refused = run(
        checkout, "pytest", "-q", "-p", "no:cacheprovider", "tests/notification_service/configuration/test_documentation.py"
    )
    (row,) = set(re.findall(r"^E +(\| `.*error-characters` .*)$", refused.stdout, re.MULTILINE))
    assert "write it below the row that begins | `payment-status-notification.resequencer.jitter-factor`" in refused.stdout
    table = checkout / "docs" / "configuration.md"
    lines = table.read_text().splitlines()
    above = next(at for at, line in enumerate(lines) if line.startswith(f"| `{RESEQUENCER}.jitter-factor`"))
    table.write_text("\n".join([*lines[: above + 1], row, *lines[above + 1 :], ""]))
    run_tests_of_documents(checkout)
    checked = run(checkout, "notification_service", "check", "--json", "--set", f"{RESEQUENCER}.error-characters=50")
    assert json.loads(checked.stdout)["keys"][f"{RESEQUENCER}.error-characters"] == {"value": 50, "layer": "--set"}
    assert run(checkout, "notification_service", "check", "--set", f"{RESEQUENCER}.error-characters=5").returncode == 3


def test_a_key_that_nothing_reads_is_named(checkout: Path) -> None:
    Recipe("a configuration key").follow(checkout)
    reader = checkout / "resequencer" / "turn" / "retry.py"
    reader.write_text(reader.read_text().replace("settings.error_characters", "_WORDS"))
    unread = run(checkout, "pytest", "-q", "-p", "no:cacheprovider", "tests/notification_service/configuration/test_keys.py")
    assert (unread.returncode, f"{RESEQUENCER}.error-characters" in unread.stdout) == (1, True)


def test_the_page_of_the_console_and_its_operation_show_what_the_service_reported(checkout: Path) -> None:
    Recipe("a page of the console").follow(checkout)
    environment = os.environ | {"PYTHONPATH": "tests"}
    subprocess.run([sys.executable, "-m", "harness.openapi"], cwd=checkout, env=environment, check=True)
    run_tests(
        checkout,
        "tests/notification_service/console/test_servers.py",
        "tests/notification_service/console/api/test_openapi.py",
        "tests/notification_service/console/test_roles.py",
    )
    run_tests_of_documents(checkout)


ASK_LEDGER = """
import sys
from sqlalchemy import text
from notification_service.delivery.ledger.database import Database
from resequencer.clock import SteadyClock

database = Database("sqlite:///ledger.db", SteadyClock(lambda: 0, lambda: 0))
with database.write() as connection:
    for each in sys.argv[1:]:
        found = connection.execute(text(each))
        print([tuple(row) for row in found] if found.returns_rows else "done")
"""


def test_the_migration_of_the_ledger_keeps_the_rows_of_the_version_before(checkout: Path) -> None:
    add = "insert into delivery_gate (receiver, state) values ('bank', 'open')"
    assert run_program(checkout, ASK_LEDGER, add) == "done\n"
    recipe = Recipe("a migration of the ledger")
    # It shows the version after 0003. By now there may be newer ones.
    numbers = {"0003": VERSION, "0004": f"{int(VERSION) + 1:04}"}
    recipe.text = re.sub("|".join(numbers), lambda found: numbers[found[0]], recipe.text)
    recipe.follow(checkout)
    assert run_program(checkout, ASK_LEDGER, "select receiver, state, note from delivery_gate") == "[('bank', 'open', '')]\n"
    assert " passed" in run_tests(checkout, "-m", "not slow", "tests/notification_service/delivery/ledger/test_database.py")
    run_tests_of_documents(checkout)


def test_the_server_starts_and_serves_its_files(checkout: Path) -> None:
    Recipe("a server").write(checkout)
    assert " passed" in run_tests(checkout, "tests/servers/test_file_server.py", "tests/house/test_packages.py")
    run_tests_of_documents(checkout)
