"""A user's own strategy, target type and handler, as their recipes say: a package where the service is started, and its name."""

import asyncio
import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, HTTPServer, ThreadingHTTPServer
from pathlib import Path
from threading import Barrier, Thread

import pytest
from harness.calling import users_calls
from harness.driving import wire
from harness.processes.operated_service import NOTIFICATION, OperatedService, envelope_line
from harness.recipes import ROOT, Recipe
from harness.waiting import DEADLINE_SECONDS

from notification_service.connectors.line_format import Line, encode_line
from notification_service.events.own_format import make_event
from notification_service.payments.payment_data import PaymentData
from notification_service.payments.target_types import CustomTarget, find_target_type
from resequencer.errors import DependencyUnavailable, PermanentError, TransientError
from resequencer.notification import notification_id
from resequencer.record import Origin, Partition, Record
from resequencer.strategies.port import Strategy

NewService = Callable[..., OperatedService]
EVENT = make_event(Record(Origin(Partition("T", 0), 7), b"v"), "uow-1", sequence=1)


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Recipe]:
    """Writes what the recipe shows into a directory that is not the project's, where the test then is."""

    def write(name: str) -> Recipe:
        recipe = Recipe(name)
        recipe.write(tmp_path)
        monkeypatch.chdir(tmp_path)
        monkeypatch.syspath_prepend(tmp_path)
        for module in [each for each in sys.modules if each.partition(".")[0] == "payments"]:
            monkeypatch.delitem(sys.modules, module)
        return recipe

    return write


def test_the_strategy_answers_every_question(own: Callable[[str], Recipe]) -> None:
    module: dict[str, type] = {}
    exec(own("a strategy").files["payments/opening_flow.py"], module)
    questions = {name for name in vars(Strategy) if not name.startswith("_")}
    assert questions - set(dir(module["OpeningFlow"])) == set()


@pytest.mark.slow
def test_the_strategy_passes_the_tests_that_its_recipe_shows(own: Callable[[str], Recipe], tmp_path: Path) -> None:
    (shown,) = [path for path in own("a strategy").files if path.startswith("tests/")]
    for name in ("tests/conftest.py", "tests/resequencer/conftest.py", "setup.cfg"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    shutil.copytree(ROOT / "tests/harness", tmp_path / "tests/harness")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", shown], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 passed" in done.stdout


@pytest.mark.slow
def test_the_strategy_orders_what_a_service_lets_out(
    own: Callable[[str], Recipe], tmp_path: Path, new_service: NewService
) -> None:
    service = new_service(tmp_path, own("a strategy").setting.replace(" = ", "="))
    service.append(_line("FraudCheckFlow", 1), _line("PaymentInitiationFlow", 2), _line("FraudCheckFlow", 3))
    service.start_and_wait()
    service.wait_for_report(lambda report: report.counts.get("handled", 0) == 3, "all of it is handled")
    assert service.stop() == 0
    ids = [each["headers"]["envelope-id"] for each in service.notifications()]
    assert ids == ["uow-1#2", "uow-1#1", "uow-1#3"]


def _line(flow: str, sequence: int) -> bytes:
    event = {"eventName": "PaymentReceived", "processFlowName": "PaymentInitiationFlow"}
    process = {"uniqueId": f"uow-1#{sequence}", "objectType": "PROCESS_FLOW_EVENT", "object": event}
    value = wire("uow-1", flow, sequence, f"uow-1#{sequence}", processObjects=[process])
    return encode_line(Line(value, b"uow-1", (("schema-version", b"2"),)))[:-1]


def test_the_target_type_that_calls_a_server_waits_for_it(own: Callable[[str], Recipe], monkeypatch: pytest.MonkeyPatch) -> None:
    own("a target type")
    monkeypatch.setenv("NO_PROXY", "*")
    target_type = find_target_type("payments.screened_message:screened_message", (), (), users_calls().find_way)
    assert isinstance(target_type, CustomTarget)
    answers = iter([503, 200, 400])

    class Screening(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.send_response(next(answers))
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    report = b'{"CstmrPmtStsRpt": {"GrpHdr": {"MsgId": "A"}}}'

    async def call(server: HTTPServer) -> None:
        with pytest.raises(DependencyUnavailable, match=r"^screening unavailable$"):
            await target_type.make(report, PaymentData(), EVENT)
        assert await target_type.make(report, PaymentData(), EVENT) == report
        with pytest.raises(PermanentError, match="screening refused it with 400"):
            await target_type.make(report, PaymentData(), EVENT)
        await asyncio.to_thread(server.shutdown)
        server.server_close()
        with pytest.raises(DependencyUnavailable):
            await target_type.make(report, PaymentData(), EVENT)

    with HTTPServer(("127.0.0.1", 0), Screening) as server:
        monkeypatch.setattr("payments.screened_message.SCREENING", f"http://127.0.0.1:{server.server_port}/screen")
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        asyncio.run(call(server))
        thread.join()


@pytest.mark.slow
def test_the_target_type_that_calls_a_server_is_called_for_several_units_at_a_time_and_for_each_in_order(
    own: Callable[[str], Recipe], tmp_path: Path, new_service: NewService, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server answers three calls at a time. A unit has one at a time, so they are of three units."""
    own("a target type")
    monkeypatch.setenv("NO_PROXY", "*")
    three = Barrier(3)

    class Screening(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            three.wait(DEADLINE_SECONDS)
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Screening) as server:
        Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        module = tmp_path / "payments" / "screened_message.py"
        code = module.read_text().replace("screening.bank.example:8080", f"127.0.0.1:{server.server_port}")
        module.write_text(code.replace("timeout=1)", f"timeout={DEADLINE_SECONDS})"))
        times = [f"{NOTIFICATION}.resequencer.{key}=3m" for key in ("processing-timeout", "handling-limit", "idle-timeout")]
        name = "payments.screened_message:screened_message"
        service = new_service(tmp_path, f'{NOTIFICATION}.target-type="{name}"', *times)
        service.append(*[envelope_line(f"uow-{unit}", sequence) for sequence in (1, 2, 3) for unit in range(3)])
        service.start_and_wait()
        service.wait_for_report(lambda report: report.counts.get("handled", 0) == 9, "all of it is handled")
        assert service.stop() == 0
        server.shutdown()
    published = [each["headers"]["envelope-id"] for each in service.notifications()]
    for unit in range(3):
        expected = [f"uow-{unit}#{sequence}" for sequence in (1, 2, 3)]
        assert [each for each in published if each in expected] == expected


def test_the_target_type_asks_to_be_called_again(own: Callable[[str], Recipe]) -> None:
    own("a target type")
    target_type = find_target_type("payments.short_message:short_message", (), ())
    report = b"""{"CstmrPmtStsRpt": {"GrpHdr": {"MsgId": "A", "InitgPty": {"Nm": "Muster"}},
        "OrgnlPmtInfAndSts": [{"TxInfAndSts": [{"TxSts": "ACCP"}]}]}}"""
    with pytest.raises(TransientError):
        target_type(report, PaymentData())
    Path("customers.json").write_text('{"Muster": "4711"}')
    assert target_type(report, PaymentData()) == b'{"id": "A", "customer": "4711", "status": "ACCP"}'


@pytest.mark.slow
def test_the_bytes_of_the_target_type_are_what_a_service_lets_out(
    own: Callable[[str], Recipe], tmp_path: Path, new_service: NewService
) -> None:
    service = new_service(tmp_path, own("a target type").setting.replace(" = ", "="))
    (tmp_path / "customers.json").write_text("{}")
    service.tell("uow-1", 1)
    service.start_and_wait()
    service.wait_for("uow-1", 1)
    assert service.stop() == 0
    (left,) = service.notifications()
    assert left["value"] == {"id": left["headers"]["notification-id"], "customer": None, "status": "RCVD"}


@pytest.mark.slow
def test_what_the_handler_says_leaves_in_order_with_the_ids_and_headers_of_every_notification(
    own: Callable[[str], Recipe], tmp_path: Path, new_service: NewService
) -> None:
    service = new_service(tmp_path, own("a handler").setting.replace(" = ", "="))
    event = {"eventName": "PaymentSettled", "processFlowName": "PaymentInitiationFlow"}
    several = [{"uniqueId": "several", "object": {"eventName": "Unknown"}}, {"uniqueId": "s", "object": event}, {"object": event}]
    service.append(envelope_line("uow-1", 5), envelope_line("uow-1", 4), envelope_line("uow-1", 6))
    service.append(*[envelope_line("uow-1", sequence) for sequence in (3, 2, 1)])
    service.append(wire_line(several))
    service.start_and_wait()
    report = service.wait_for_report(lambda report: report.counts.get("handled", 0) == 7, "all of it is handled")
    assert service.stop() == 0
    assert report.notifications == {"ACSC": 3}
    assert report.counts["suppressed"] == 6
    note = {"desk": None, "known": []}
    ids = [("uow-1", "uow-1#5", 0), ("uow-2", "several", 1), ("uow-2", "several", 2)]
    left = service.notifications()
    assert sorted(each["headers"]["notification-id"] for each in left) == sorted(notification_id(*each) for each in ids)
    (first,) = [each for each in left if each["key"] == "uow-1"]
    assert first["value"] == {"payment": "uow-1", **note}
    assert first["headers"] == {
        "notification-id": notification_id("uow-1", "uow-1#5", 0),
        "envelope-id": "uow-1#5",
        "source-position": "IPF_PROCESSING_DATA-0@0",
        "event-name": "PaymentSettled",
        "process-flow-name": "PaymentInitiationFlow",
        "transaction-status": "ACSC",
    }


def wire_line(process_objects: list[dict[str, object]]) -> bytes:
    value = wire("uow-2", "PaymentInitiationFlow", 1, "several", processObjects=process_objects)
    return encode_line(Line(value, b"uow-2", (("schema-version", b"2"),)))[:-1]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("resequencer.strategy", "payments.gone:Strategy", "cannot be used: ModuleNotFoundError"),
        ("target-type", "payments.gone:function", "cannot be imported (ModuleNotFoundError: No module named 'payments.gone')"),
        ("handler", "payments.gone:Handler", "cannot be imported (ModuleNotFoundError: No module named 'payments.gone')"),
        ("handler", "payments.desk_notes:json", "is a module; name a class with the method handle"),
        ("handler", "payments.desk_notes:json.JSONDecodeError", "expected"),
        ("handler", "payments.desk_notes:Message", "cannot be used: TypeError"),
        ("handler", "payments.desk_notes:HandlerSettings", "cannot be used: TypeError: it has no method handle"),
    ],
)
def test_what_cannot_be_used_is_refused_with_key_and_value(
    own: Callable[[str], Recipe], tmp_path: Path, new_service: NewService, key: str, value: str, expected: str
) -> None:
    own("a handler")
    checked = new_service(tmp_path, f"{NOTIFICATION}.{key}={json.dumps(value)}").verb("check")
    assert checked.returncode == 3
    assert checked.stderr.startswith(f"resequencer: {NOTIFICATION}.{key}: ")
    assert value in checked.stderr
    assert expected in checked.stderr


@pytest.mark.slow
def test_verify_says_that_it_cannot_judge_a_handler_of_ones_own(
    own: Callable[[str], Recipe], tmp_path: Path, new_service: NewService
) -> None:
    service = new_service(tmp_path, own("a handler").setting.replace(" = ", "="))
    assert service.verb("simulate", "--units", "2").returncode == 0
    verified = service.verb("verify")
    assert verified.returncode == 3
    assert "payments.desk_notes:DeskNotes" in verified.stderr
    assert "resequencer audit" in verified.stderr
