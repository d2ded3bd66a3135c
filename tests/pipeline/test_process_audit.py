"""`resequencer audit` as an operator has it: what a running service let out, and what somebody took away from it."""

import json

from operated_service import OperatedService

PATIENCE_SECONDS = 600


def test_what_a_service_let_out_is_proved_and_a_line_that_is_gone_is_named(service: OperatedService) -> None:
    service.start_and_wait()
    assert service.verb("simulate", "--units", "30", "--seed", "7", "--late", "0").returncode == 0
    service.wait_until_idle()
    assert service.stop() == 0

    sound = service.verb("audit", seconds=PATIENCE_SECONDS)
    assert sound.returncode == 0, sound.stdout + sound.stderr
    assert "Nothing lost, nothing doubled, nothing out of order, content as expected" in sound.stdout
    assert [line.split(" ")[0] for line in sound.stderr.splitlines()] == ["Starting", "Reading"], sound.stderr
    page = (service.run_directory / "audit" / "page.html").read_text()
    assert page.count("<svg") == 3
    assert "://" not in page

    output = service.run_directory / "out" / "notifications.jsonl"
    first, *others = output.read_bytes().splitlines(keepends=True)
    output.write_bytes(b"".join(others))
    robbed = service.verb("audit", "--json", seconds=PATIENCE_SECONDS)
    assert robbed.returncode == 1, robbed.stdout + robbed.stderr
    said = json.loads(robbed.stdout)
    assert said["good"] is False
    assert said["counts"]["lost"] == 1
    assert said["examples"][0]["unit"] == json.loads(first)["key"]
    assert said == json.loads((service.run_directory / "audit" / "summary.json").read_bytes())
