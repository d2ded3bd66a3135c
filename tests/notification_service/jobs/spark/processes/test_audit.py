"""`resequencer audit` as an operator runs it: on the output of a running service, and after a part of it is removed."""

import json
from pathlib import Path

import pytest
from harness.processes.operated_service import INGRESS, NOTIFICATION, OperatedService
from harness.waiting import wait_until

from notification_service.connectors.line_format import Line, encode_line
from notification_service.supervision.exit_code import ExitCode
from notification_service.supervision.locks import RunLock

LONGEST_WAIT_SECONDS = 600


def tree(directory: Path) -> dict[str, bytes]:
    """Return the files that an audit wrote for other programs."""
    names = (path.relative_to(directory) for path in directory.rglob("*") if path.is_file())
    return {
        str(name): (directory / name).read_bytes()
        for name in names
        if not name.name.startswith("audit.lock") and name.parts[0] != ".building"
    }


def test_what_is_not_enough_to_judge_by_has_an_exit_code_of_its_own(service: OperatedService) -> None:
    refused = service.verb("audit", seconds=LONGEST_WAIT_SECONDS)
    assert refused.returncode == 5, refused.stdout + refused.stderr
    assert "holds no input; is this the service's configuration?" in refused.stderr
    assert "Traceback" not in refused.stderr


def test_of_what_a_service_let_out_a_line_that_is_gone_is_named(service: OperatedService) -> None:
    service.start_and_wait()
    assert service.verb("simulate", "--units", "30", "--seed", "7", "--late", "0").returncode == 0
    service.wait_until_idle()
    assert service.stop() == 0
    output = service.run_directory / "out" / "notifications.jsonl"
    first, *others = output.read_bytes().splitlines(keepends=True)
    output.write_bytes(b"".join(others))
    robbed = service.verb("audit", "--json", seconds=LONGEST_WAIT_SECONDS)
    assert robbed.returncode == 1, robbed.stdout + robbed.stderr
    assert [line.split(" ")[0] for line in robbed.stderr.splitlines()] == ["Starting", "Auditing"], robbed.stderr
    page = (service.run_directory / "audit" / "page.html").read_text()
    assert page.count('<svg class="chart"') == 3
    assert "://" not in page
    report = json.loads(robbed.stdout)
    assert report["good"] is False
    assert report["counts"]["lost"] == 1
    assert report["examples"][0]["unit"] == json.loads(first)["key"]
    assert report == json.loads((service.run_directory / "audit" / "summary.json").read_bytes())


@pytest.mark.nightly("jobs")
def test_records_that_left_as_they_came_are_judged_without_a_word_of_payments(service: OperatedService) -> None:
    with (service.directory / "service.conf").open("a") as file:
        file.write(f"""{NOTIFICATION} {{
          handler = pass-through, settings = "none.csv", resequencer {{ strategy = SEQUENCE, storage-type = embedded }}
        }}
        {INGRESS}.events.format = cloudevents""")
    service.in_directory.mkdir(parents=True)
    head = (("ce_specversion", b"1.0"), ("ce_source", b"/shop"), ("ce_type", b"paid"))
    lines = []
    for order in range(20):
        for number in (2, 1, 3):
            own = (("ce_id", b"%d" % (order * 10 + number)), ("ce_subject", b"o-%d" % order), ("ce_sequence", b"%d" % number))
            lines.append(encode_line(Line(b"\x00\xff", b"key", (*head, *own))))
    (service.in_directory / "partition-0.jsonl").write_bytes(b"".join(lines))
    service.start_and_wait()
    service.wait_until_idle()
    assert service.stop() == 0
    sound = service.verb("audit", seconds=LONGEST_WAIT_SECONDS)
    assert sound.returncode == 0, sound.stdout + sound.stderr
    assert sound.stdout.startswith(
        "60 notifications of 20 units compared with 60 envelopes; 0 marked incomplete, 0 marked late, 0 open"
    )
    page = (service.run_directory / "audit" / "page.html").read_text()
    assert "payment" not in page.replace(NOTIFICATION, "").replace(str(service.directory), "")
    assert "lookups" not in page
    output = service.out_directory / "notifications.jsonl"
    first, second, *others = output.read_bytes().splitlines(keepends=True)
    output.write_bytes(b"".join([*others, others[5], second.replace(b"paid", b"sent")]))
    report = json.loads(service.verb("audit", "--json", seconds=LONGEST_WAIT_SECONDS).stdout)
    found = {name: count for name, count in report["counts"].items() if count}
    assert found == {"lost": 1, "doubled": 1, "wrong headers": 1, "out of order": 1}, report["examples"]
    assert json.loads(first)["headers"]["ce_subject"] in {each["unit"] for each in report["examples"]}


@pytest.mark.nightly("jobs")
def test_one_that_is_killed_or_comes_second_leaves_what_the_last_one_wrote(service: OperatedService) -> None:
    service.start_and_wait()
    assert service.verb("simulate", "--units", "30", "--seed", "7", "--late", "0").returncode == 0
    service.wait_until_idle()
    assert service.stop() == 0
    sound = service.verb("audit", seconds=LONGEST_WAIT_SECONDS)
    assert sound.returncode == 0, sound.stdout + sound.stderr
    assert "Nothing is lost, doubled or out of order; the content is as expected" in sound.stdout
    written = tree(service.run_directory / "audit")
    killed = service.begin_verb("audit")
    building = service.run_directory / "audit" / ".building" / "result"
    wait_until(building.exists, "the tables are begun", LONGEST_WAIT_SECONDS)
    killed.kill()
    killed.wait()
    assert tree(service.run_directory / "audit") == written, "a killed audit leaves what the last one wrote"

    lock = RunLock(service.run_directory / "audit", "audit")
    lock.acquire()
    second = service.verb("audit", seconds=LONGEST_WAIT_SECONDS)
    lock.release()
    assert second.returncode == ExitCode.NOT_JUDGED
    assert second.stderr.endswith("audit: another audit writes to it; wait until that has ended, or choose another --output\n")
    assert service.verb("audit", seconds=LONGEST_WAIT_SECONDS).returncode == 0
    assert not building.parent.exists()
