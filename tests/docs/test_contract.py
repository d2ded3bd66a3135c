"""docs/contract.md names everything that the outside holds on to, as the code has it."""

import re
from pathlib import Path

import msgspec

from guardian import headers
from notification_service.command_line import COMMANDS
from notification_service.connectors.line_format import Line, decode_line
from notification_service.events.format import DecodingSettings
from notification_service.payments.decoding import EnvelopeDecoder
from notification_service.payments.envelope import PAIN_001_PARTS, DataEnvelope
from notification_service.payments.notification_settings import COLUMNS, parse_notification_settings
from notification_service.payments.target_types import TARGET_TYPES
from notification_service.supervision.exit_code import ExitCode
from resequencer.dead_letter import DeadLetterReason
from resequencer.notification import notification_id
from resequencer.order import OrderKind
from resequencer.record import Origin, Partition, Record

ROOT = Path(__file__).parents[2]
CONTRACT = (ROOT / "docs" / "contract.md").read_text(encoding="utf-8")


def section(number: int) -> str:
    found = re.search(rf"^## {number}\. .*?(?=^## |\Z)", CONTRACT, re.DOTALL | re.MULTILINE)
    assert found
    return found[0]


def first_cells(text: str) -> str:
    return "\n".join(line.split("|")[1] for line in text.splitlines() if line.startswith("|"))


def names(text: str) -> set[str]:
    return set(re.findall(r"`([^`]+)`", text))


def test_every_make_target_is_named() -> None:
    targets = re.findall(r"^([a-z-]+):.*## ", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    assert {f"make {target}" for target in targets} == names(first_cells(section(1)))


def test_every_command_is_named() -> None:
    commands = {name.split()[0] for name in names(first_cells(section(2)))}
    delivery = {"start", "jobs", "cancel", "accept-loss", "retry-failed", "errors", "gates", "open-gate", "waiting", "retry-now"}
    delivery |= {"blocked", "skip-all", "block", "schedules"}
    assert delivery < commands
    subcommands = {"show", "requeue", "edit", "discard", "list", "rollback", "pause", *(each.value for each in OrderKind)}
    subcommands |= {"close", "reset", "set"}
    assert set(COMMANDS) == commands - subcommands - (delivery - {"start"})


def test_every_exit_code_is_named() -> None:
    assert re.findall(r"^\| ([0-9]+) \|", section(2), re.MULTILINE) == [str(code.value) for code in ExitCode]


def test_every_header_is_named() -> None:
    known = {value for name, value in vars(headers).items() if name.isupper() and isinstance(value, str)}
    known -= {headers.DEAD_LETTER_PREFIX, headers.OURS, headers.ORIGINAL, headers.UNIT_OF_WORK}
    known |= {f"{headers.OURS}{headers.UNIT_OF_WORK}"}
    named = {name for number in (4, 6, 9, 12, 13, 14, 15, 16, 19) for name in names(section(number))}
    assert known - named == set()


def test_every_reason_of_a_dead_letter_is_named_and_no_other() -> None:
    reasons = section(9).partition("| reason |")[2]
    assert names(first_cells(reasons)) == {reason.value for reason in DeadLetterReason}


def test_every_target_type_is_named() -> None:
    named = names(first_cells(section(7).partition("The report has")[0]))
    assert named == {*TARGET_TYPES, "package.module:callable"}


def test_the_header_and_the_rows_of_the_settings_are_those_that_come_with_the_service() -> None:
    chapter = section(8)
    assert f"\n{','.join(COLUMNS)}\n" in chapter
    with (ROOT / "conf" / "notification-settings.csv").open(encoding="utf-8") as lines:
        shipped = {
            (row.process_flow_name, row.event_name, row.transaction_status, row.reason_code)
            for row in parse_notification_settings(lines, "shipped")
        }
    rows = re.findall(r"^\| `(\w+)` \| (`.*) \|$", chapter.partition("The rows that come")[2], re.MULTILINE)
    events = r"`(\w+)` ([A-Z]{4})(?: with ([A-Z0-9]{4}))?"
    assert {(flow, *event[:2], event[2] or None) for flow, text in rows for event in re.findall(events, text)} == shipped


def test_the_envelope_of_the_page_is_one_and_has_a_whole_payment() -> None:
    (example,) = re.findall(r"```json\n(.*?)```", section(4), re.DOTALL)
    decoder = EnvelopeDecoder(DecodingSettings(needs_sequence=True))
    envelope = decoder.decode(Record(Origin(Partition("T", 0), 0), example.encode()))
    assert isinstance(envelope, DataEnvelope)
    assert tuple(each.object_type for each in envelope.mds_objects) == PAIN_001_PARTS
    assert [each.event_name for each in envelope.process_objects] == ["PaymentReceived"]
    assert [each.key for each in envelope.custom_objects] == ["BusinessData"]
    assert [each.name for each in envelope.pds_objects] == ["pdsBusinessData"]
    assert envelope.processing_entity == "BANK_001"


def test_the_notification_id_of_the_page_is_right() -> None:
    assert notification_id("uow-1", "event-1", 0) in names(section(5))


def test_a_line_of_the_page_is_a_line() -> None:
    (example,) = re.findall(r"```\n(\{.*?)\n```", section(10), re.DOTALL)
    read = decode_line(example.replace("{…}", '{"a": 1}').encode())
    assert isinstance(read, Line)
    assert (read.key, read.headers, msgspec.json.decode(read.value)) == (b"uow-1", (("schema-version", b"2"),), {"a": 1})
