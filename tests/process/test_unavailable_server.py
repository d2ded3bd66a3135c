"""A user's own target type calls an unavailable server: the service reports it, continues, and catches up later."""

from collections.abc import Callable
from pathlib import Path

import pytest
from harness.processes.operated_service import NOTIFICATION, OperatedService
from harness.waiting import wait_until

pytestmark = pytest.mark.slow

TARGET = """
from pathlib import Path

from resequencer.errors import DependencyUnavailable


def target(produced):
    report = produced["report"]["CstmrPmtStsRpt"]
    status = str(report["OrgnlPmtInfAndSts"][0]["TxInfAndSts"][0]["TxSts"])
    if status == "ACTC" and Path("away").exists():
        raise DependencyUnavailable("sanctions-api")
    return status.encode()
"""
"""Event 2, PaymentValidated, leads to ACTC and needs the server, which is unavailable while the file exists."""


@pytest.fixture
def service(new_service: Callable[..., OperatedService], tmp_path: Path) -> OperatedService:
    (tmp_path / "sheets.py").write_text(TARGET, encoding="utf-8")
    text = f"{NOTIFICATION} {{ transport = file, target-type = 'sheets:target' }}\n".replace("'", '"')
    text += "ipf.processing-data.ingress.transport = file\n"
    text += f"{NOTIFICATION}.resequencer {{ storage-type = embedded, strategy = SEQUENCE, processing-timeout = 100ms }}\n"
    (tmp_path / "own.conf").write_text(text, encoding="utf-8")
    return new_service(config="own.conf")


def test_status_names_the_server_and_nothing_becomes_a_dead_letter(service: OperatedService) -> None:
    (service.directory / "away").touch()
    service.start_and_wait()
    service.tell("uow-1", 1, 2, 3)
    service.tell("uow-2", 1)
    service.wait_for("uow-2", 1)
    wait_until(lambda: "sanctions-api unavailable" in service.verb("status").stdout, f"the server is named; {service.log}")
    lines = service.verb("status").stdout.splitlines()
    assert lines[0] == "ready"
    assert "sanctions-api unavailable: 1 unit waits for it" in lines
    assert any("uow-1 for sanctions-api (2 stashed, dependency at " in line for line in lines)
    wait_until(lambda: service.log.count("sanctions-api is unavailable") == 1, "it is logged once")
    assert service.stop() == 0
    service.start_and_wait()
    wait_until(lambda: "sanctions-api unavailable" in service.verb("status").stdout, "another worker knows it too")
    (service.directory / "away").unlink()
    service.wait_for("uow-1", 1, 2, 3)
    assert service.dead_letters() == []
    service.wait_until_idle()
    assert "unavailable" not in service.verb("status").stdout
    assert service.stop() == 0
