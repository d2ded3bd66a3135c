"""How long the audit files are kept, also if the clock is set, and whose address is in a line."""

from __future__ import annotations

import json
import os
from ipaddress import ip_network
from pathlib import Path

import pytest
from harness.service_under_test import FakeClock
from harness.synced import noting_syncs
from starlette.requests import HTTPConnection, Request

from notification_service.console.access.identity import AuditLog, Client, Identity, find_client
from resequencer.clock import Belief, SteadyClock

HOUR_MS, DAY_MS = 3_600_000, 86_400_000


class Audited:
    """An audit log with a retention of 90 days, a clock that can be set and an uptime that cannot."""

    def __init__(self, directory: Path, client: Client = Client("testclient")) -> None:  # noqa: B008 - an immutable value.
        self.directory = directory
        self.clock = FakeClock()
        self.uptime_ms = 0
        self.known: Belief | None = None
        self.begin_anew()
        state = {"identity": Identity("ann", frozenset(), sends_by_itself=False), "client": client}
        self.request = Request({"type": "http", "state": state, "headers": []})

    def begin_anew(self) -> None:
        """Let another console go on, which finds what the last one knew of the clock."""
        clock = SteadyClock(self.clock.now, lambda: self.uptime_ms, known=self.known, keep=self._keep)
        self.log = AuditLog(self.directory, 90 * DAY_MS, clock)

    def _keep(self, belief: Belief) -> None:
        self.known = belief

    def pass_and_note(self, milliseconds: int) -> None:
        self.clock.advance(milliseconds)
        self.uptime_ms += milliseconds
        self.log.note(self.request, "change")

    def set_and_note(self, milliseconds: int) -> None:
        """Set the clock, while no time passes."""
        self.clock.advance(milliseconds)
        self.log.note(self.request, "change")

    def made(self, *days: str) -> None:
        for day in days:
            (self.directory / f"console-audit-{day}.jsonl").touch()

    @property
    def days(self) -> list[str]:
        return sorted(each.name[14:24] for each in self.directory.glob("console-audit-*.jsonl"))


def test_audit_files_are_deleted_after_the_retention_and_not_before(tmp_path: Path) -> None:
    audited = Audited(tmp_path)
    audited.made("2025-12-27", "2025-12-28")
    audited.pass_and_note(0)
    audited.pass_and_note(HOUR_MS // 2)
    assert audited.days == ["2025-12-27", "2025-12-28", "2026-03-28"]
    audited.pass_and_note(HOUR_MS // 2)
    assert "2025-12-27" not in audited.days
    audited.pass_and_note(100 * DAY_MS)
    assert len(audited.days) == 1, "also what this process wrote ends"


def test_a_line_is_on_the_disk_with_the_name_of_its_file_which_each_console_syncs_once_a_day(tmp_path: Path) -> None:
    """The console that made the file may have been killed before it did."""
    audited, file = Audited(tmp_path), str(tmp_path / "console-audit-2026-03-28.jsonl")
    for _ in range(2):
        with noting_syncs() as synced:
            audited.pass_and_note(0)
            audited.pass_and_note(0)
        assert synced == [file, str(tmp_path), file]
        audited.begin_anew()


def test_consoles_that_live_for_less_than_an_hour_delete_old_files_too(tmp_path: Path) -> None:
    audited = Audited(tmp_path)
    audited.made("2025-12-27")
    for _ in range(4):
        audited.pass_and_note(0)
        audited.pass_and_note(HOUR_MS // 3)
        audited.begin_anew()
    audited.pass_and_note(0)
    assert audited.days == ["2026-03-28", "2026-03-29"]


def test_a_line_that_is_written_while_the_clock_is_ahead_has_the_date_of_before(tmp_path: Path) -> None:
    audited = Audited(tmp_path)
    audited.pass_and_note(0)
    audited.pass_and_note(HOUR_MS)
    audited.set_and_note(3_650 * DAY_MS)
    assert max(audited.days) < "2026-04"


def test_a_clock_that_is_ahead_for_a_moment_deletes_nothing(tmp_path: Path) -> None:
    audited = Audited(tmp_path)
    audited.made("2026-03-01")
    audited.pass_and_note(0)
    audited.pass_and_note(2 * HOUR_MS)
    audited.set_and_note(3_650 * DAY_MS)
    audited.pass_and_note(HOUR_MS // 2)
    audited.set_and_note(-3_650 * DAY_MS)
    audited.pass_and_note(2 * HOUR_MS)
    assert {"2026-03-01", "2026-03-28", "2026-03-29"} <= set(audited.days)


def test_what_was_written_while_the_clock_was_behind_is_young(tmp_path: Path) -> None:
    audited = Audited(tmp_path)
    audited.pass_and_note(0)
    audited.set_and_note(-3_650 * DAY_MS)
    (behind,) = set(audited.days) - {"2026-03-28"}
    audited.set_and_note(3_650 * DAY_MS)
    audited.pass_and_note(2 * HOUR_MS)
    assert behind in audited.days


def test_a_line_names_the_client_beside_the_proxy(tmp_path: Path) -> None:
    audited = Audited(tmp_path, Client("203.0.113.9", "10.0.0.1"))
    audited.pass_and_note(0)
    (file,) = tmp_path.glob("console-audit-*.jsonl")
    line = json.loads(file.read_text())
    assert (line["from"], line["proxy"]) == ("203.0.113.9", "10.0.0.1")


def test_limits_count_a_network_of_ipv6_as_one_client() -> None:
    assert Client("2001:db8::1").network == Client("2001:db8::ffff:0:0:2").network == "2001:db8::/64"
    assert Client("2001:db8:0:1::1").network == "2001:db8:0:1::/64"
    assert Client("fe80::1%eth0").network == "fe80::/64"
    assert Client("::ffff:203.0.113.9").network == Client("203.0.113.9").network == "203.0.113.9"


@pytest.mark.parametrize(
    ("address", "headers", "client"),
    [
        ("192.0.2.7", ("203.0.113.9",), Client("192.0.2.7")),
        ("10.0.0.1", (), Client("10.0.0.1")),
        ("10.0.0.1", ("203.0.113.9",), Client("203.0.113.9", "10.0.0.1")),
        ("10.0.0.1", ("198.51.100.1, 203.0.113.9",), Client("203.0.113.9", "10.0.0.1")),
        ("10.0.0.1", ("198.51.100.1", "203.0.113.9, 10.0.0.2"), Client("203.0.113.9", "10.0.0.1")),
        ("10.0.0.1", ("2001:DB8::1",), Client("2001:db8::1", "10.0.0.1")),
        ("10.0.0.1", ("198.51.100.1, what, 10.0.0.2",), Client("10.0.0.1")),
        ("10.0.0.1", ("10.0.0.2",), Client("10.0.0.1")),
    ],
)
def test_only_what_trusted_proxies_appended_is_believed(address: str, headers: tuple[str, ...], client: Client) -> None:
    raw = [(b"x-forwarded-for", each.encode()) for each in headers]
    connection = HTTPConnection({"type": "http", "headers": raw, "client": (address, 1)})
    assert find_client(connection, [ip_network("10.0.0.0/8")]) == client


def test_a_line_that_root_writes_keeps_the_service_from_none(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give a file away")
    os.chown(tmp_path, 12_345, 12_345)
    audited = Audited(tmp_path)
    audited.log.note_from_shell("root", "delivery.pause")
    (file,) = tmp_path.glob("console-audit-*.jsonl")
    assert (file.stat().st_uid, file.stat().st_gid) == (12_345, 12_345)
