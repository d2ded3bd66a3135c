"""What can be kept true in the prose: targets, tables, and every command and piece of code that a reader would copy."""

import os
import re
import shutil
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from guardian.guardian_actor import SUPERVISION
from guardian.metrics import COUNTED
from notification_service.configuration.configuration import load
from notification_service.connectors.line_format import Line, decode_line
from notification_service.events.format import DecodingSettings
from notification_service.payments.decoding import EnvelopeDecoder
from notification_service.payments.envelope import DataEnvelope
from resequencer.record import Origin, Partition, Record
from resequencer.unit import REMEMBERED_ENVELOPES
from servers.server import remove_all

ROOT = Path(__file__).parents[2]
PROSE = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
SLEEP_UNTIL_DONE = """
sleep() {
  for _ in $(seq 240); do
    command sleep 0.25
    size=$(stat -c %s run/application/in/partition-0.jsonl)
    report=$(cat run/application/status.json)
    [[ $report == *"\\"read_to\\": $size,"* && $report == *'"unpublished": 0,'* ]] && break
  done
}
"""
"""The page sleeps for as long as its commands need on a quiet machine. Here they get the time that they need."""


def text_of(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def fenced(language: str, text: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)


def test_every_test_that_the_prose_names_exists() -> None:
    tests = "\n".join(each.read_text(encoding="utf-8") for each in ROOT.glob("tests/**/*.py"))
    named = named_in_prose(r"`(test_\w+)`")
    assert named
    assert named - set(re.findall(r"^ *def (test_\w+)", tests, re.MULTILINE)) == set()


def test_an_opening_fence_has_only_a_language() -> None:
    """Text behind it is not shown: a program that filled the lines of a paragraph has once joined a listing to its fence."""
    for page in PROSE:
        fences = re.findall(r"^ *```(.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
        assert [each for each in fences if not re.fullmatch(r"[a-z]*", each)] == [], page
        assert len(fences) % 2 == 0, page


def by_hand() -> str:
    """The service by hand of docs/trying.md."""
    return text_of("docs/trying.md").partition("## A first service by hand")[2].partition("\n## ")[0]


def on_real_servers() -> str:
    """The README's service on Kafka and Redis."""
    return text_of("README.md").partition("## On real servers")[2].partition("\n## ")[0]


def write(directory: Path, files: dict[str, str]) -> None:
    for name, content in files.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, encoding="utf-8")


def named_in_prose(form: str) -> set[str]:
    return {name for page in PROSE for name in re.findall(form, page.read_text(encoding="utf-8"), re.MULTILINE)}


def test_every_make_target_that_is_named_exists():
    targets = re.findall(r"^([a-z-]+):", text_of("Makefile"), re.MULTILINE)
    assert named_in_prose(r"(?:`|^)make ([a-z][a-z-]*)") - set(targets) == set()


def test_every_benchmark_that_is_named_exists():
    there = {each.stem for each in ROOT.glob("benchmarks/[a-z]*.py")}
    assert named_in_prose(r"(?:-m benchmarks\.|BENCH=)([a-z_]+)") - there == set()


def test_every_decision_is_in_the_index_under_its_number():
    index = text_of("docs/decisions/README.md")
    for page in sorted(ROOT.glob("docs/decisions/[0-9]*.md")):
        number = int(page.name[:4])
        assert f"| [{number}]({page.name}) |" in index
        assert page.read_text(encoding="utf-8").startswith(f"# {number}. ")


def test_every_page_of_the_documentation_can_be_reached_from_the_readme():
    assert {str(page.relative_to(ROOT)) for page in ROOT.glob("docs/*.md")} <= set(
        re.findall(r"\(([^)]+)\)", text_of("README.md"))
    )


def test_the_supervision_table_says_what_the_code_does():
    rows = [f"| {where.value} | `{what.name}` | {what.value} |" for where, what in SUPERVISION.items()]
    assert re.findall(r"^\| .* \| `[A-Z_]+` \| .*$", text_of("docs/architecture.md"), re.MULTILINE) == rows


def test_the_number_of_remembered_envelopes_is_the_one_of_the_code():
    number = f"{REMEMBERED_ENVELOPES:_}".replace("_", " ")
    for page in ("README.md", "docs/architecture.md", "docs/decisions/0007-envelope-ids-packed.md", "docs/decisions/README.md"):
        assert re.search(rf"\b{number}\b", text_of(page)), page


def test_operators_are_told_of_every_count_of_a_turn():
    documented = re.findall(r"^\| `([a-z_]+)` \|", text_of("docs/operations.md"), re.MULTILINE)
    assert COUNTED.keys() - set(documented) == set()


def test_the_envelopes_of_the_service_by_hand_are_envelopes():
    lines = [line for block in fenced("sh", by_hand()) for line in block.splitlines() if line.startswith("{")]
    decoder, found = EnvelopeDecoder(DecodingSettings(needs_sequence=True)), []
    for offset, text in enumerate(lines):
        line = decode_line(text.encode())
        assert isinstance(line, Line)
        found.append(decoder.decode(Record(Origin(Partition("T", 0), offset), line.value, line.key, line.headers)))
    assert [each.sequence for each in found if isinstance(each, DataEnvelope)] == [3, 2, 1, 1, 4]
    assert found[3].digest == found[2].digest


def test_the_configurations_of_the_readme_are_valid(tmp_path):
    shutil.copytree(ROOT / "conf", tmp_path / "conf")
    for block in fenced("hocon", text_of("README.md")):
        write(tmp_path, {"conf/own.conf": block})
        assert load(tmp_path / "conf/own.conf").warnings == ()


@pytest.mark.slow
def test_the_service_by_hand_does_what_its_page_says(tmp_path):
    commands = SLEEP_UNTIL_DONE + "".join(fenced("sh", by_hand()))
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    shell = subprocess.Popen(
        ["bash"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=tmp_path, env=environment, text=True, start_new_session=True
    )
    try:
        output, _ = shell.communicate(commands, timeout=120)
    finally:
        # A service that was begun and not ended would outlive the tests.
        with suppress(ProcessLookupError):
            os.killpg(shell.pid, signal.SIGKILL)
    waits, *shown = fenced("text", by_hand())
    assert "uow-1 for sequence:1 (2 stashed, deadline at" in waits
    assert "uow-1 for sequence:1 (2 stashed, deadline at" in output
    first, second = shown
    assert output.endswith(f"{first}ended with 0\n{second}ended with 0\n")


@pytest.mark.slow
def test_the_service_on_real_servers_does_what_the_readme_says(tmp_path):
    (commands,) = fenced("sh", on_real_servers())
    (shown,) = fenced("text", on_real_servers())
    assert "--units 2000 " in commands
    # So many as that number show nothing more here.
    done = walked_through(tmp_path, commands.replace("--units 2000 ", "--units 300 --late 0 "), "conf/local.conf")
    assert shown in done.stdout
    assert re.search(r"^ready\nprocess [0-9]+ since \S+, 2 workers\n4 partitions: ", done.stdout, re.MULTILINE)
    assert done.stdout.endswith("stopped\nstopped: artemis, infinispan, kafka, postgresql, receiver, redis\n")


@pytest.mark.nightly("docs")
def test_from_queues_to_queues_on_real_servers_as_the_page_of_regions_says(tmp_path):
    commands = fenced("sh", text_of("docs/regions.md").partition("To try it, with Artemis")[2])[0]
    assert "--units 1000 " in commands
    done = walked_through(tmp_path, commands.replace("--units 1000 ", "--units 300 --late 0 "), "conf/local-jms.conf")
    (shown,) = fenced("text", on_real_servers())
    assert shown in done.stdout


@pytest.mark.nightly("docs")
def test_by_mqtt_through_the_bridge_on_real_servers_as_its_page_says(tmp_path):
    commands = fenced("sh", text_of("docs/bridge.md").partition("## To try it")[2])[0]
    assert "--units 1000 " in commands
    done = walked_through(tmp_path, commands.replace("--units 1000 ", "--units 300 --late 0 "), "conf/local-mqtt.conf")
    (shown,) = fenced("text", on_real_servers())
    assert shown in done.stdout
    bridge = r"^bridge: from mqtt://\S+ IPF_PROCESSING_DATA/# to topic MQTT_PROCESSING_DATA: ([0-9,]+) messages appended, 0 not"
    match = re.search(bridge, done.stdout, re.MULTILINE)
    assert match is not None, done.stdout
    assert int(match[1].replace(",", "")) > 300


@pytest.mark.nightly("docs")
def test_the_events_of_a_shop_on_real_servers_as_their_page_says(tmp_path):
    page = text_of("docs/trying.md").partition("### Events of a shop")[2].partition("\n## ")[0]
    (configuration,), (commands,) = fenced("hocon", page), fenced("sh", page)
    write(tmp_path, {"shop.conf": configuration})
    assert "--units 2000 " in commands
    commands = "make servers\nmv shop.conf conf\n" + commands.replace("--units 2000 ", "--units 300 --late 0 ")
    done = walked_through(tmp_path, commands, "conf/shop.conf")
    (shown,) = fenced("text", on_real_servers())
    assert shown in done.stdout


def walked_through(directory: Path, commands: str, configuration: str) -> subprocess.CompletedProcess[str]:
    """Run the commands of a page as a user would, and end whatever they have left running."""
    checkout_of_a_user(directory)
    # Below another make it would tell of the directories that it enters.
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
    try:
        done = subprocess.run(
            ["bash", "-e"], input=commands, cwd=directory, env=environment, capture_output=True, text=True, check=False
        )
    finally:
        for target in ("stop", "servers-stop"):
            subprocess.run(["make", target, f"CONF={configuration}"], cwd=directory, env=environment, check=False)
        remove_all(directory / "run" / "servers")
    assert done.returncode == 0, done.stdout + done.stderr
    return done


def checkout_of_a_user(directory: Path) -> None:
    """With our virtual environment, set up already, in place of one of its own."""
    for name in ("conf", "servers"):
        shutil.copytree(ROOT / name, directory / name)
    for name in ("Makefile", "setup.cfg", "pyproject.toml"):
        shutil.copy(ROOT / name, directory)
    (directory / ".venv").mkdir()
    for name in ("bin", "lib", "pyvenv.cfg"):
        (directory / ".venv" / name).symlink_to(Path(sys.prefix) / name)
    # Not to be set up once more: that would install this copy into the environment of the tests.
    for name in (".runtime-ready", ".jms-ready"):
        (directory / ".venv" / name).touch()
