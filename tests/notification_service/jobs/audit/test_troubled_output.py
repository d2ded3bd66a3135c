"""The audit finds nothing after restarts, lost storage, bounds, archives, new lookups, or with a user's own target type."""

from __future__ import annotations

from collections import Counter
from contextlib import ExitStack, closing
from io import StringIO
from pkgutil import resolve_name as resolve

import msgspec
import pytest
from harness.published_lookups import publish, shaped
from harness.service_under_test import envelope_line, value_of
from harness.spark.audited_service import TABLE, AuditedService, lines_of, write_lines

import notification_service.jobs.audit.replay_handler
from notification_service.connectors.dead_letters.actions import Edit
from notification_service.connectors.dead_letters.decisions import edit
from notification_service.connectors.dead_letters.port import Signature
from notification_service.connectors.files import input_archive
from notification_service.connectors.files.input_archive import InputArchive
from notification_service.connectors.files.operations import SystemFiles
from notification_service.jobs.audit.row_audit import ARRIVAL, FINDING, PUBLISHED
from notification_service.jobs.errors import AuditRefused
from notification_service.lookups.directory import LookupsDirectory
from notification_service.lookups.release import open_release
from notification_service.lookups.shapes import SETTINGS
from notification_service.payments.enrichment import Lookups
from notification_service.payments.notification_settings import parse_notification_settings
from notification_service.payments.settings import make_handler
from notification_service.wiring.dead_letter_stores import FileDeadLetterStore
from resequencer.errors import EndedItsWorker, PermanentError, TooLarge
from resequencer.settings import ResequencerSettings


@pytest.mark.slow
@pytest.mark.parametrize("storage", ["embedded", "none"])
def test_restarts_leave_nothing_to_be_found(tmp_path, storage):
    audited = AuditedService(tmp_path, storage=storage, acknowledge_handled=storage == "none", batch_size=7)
    audited.live_with(lambda service: (service.run(), service.restart()))
    assert audited.findings() == []


@pytest.mark.slow
def test_what_a_storage_that_forgot_lets_out_again_is_marked_and_so_explained(tmp_path):
    audited = AuditedService(tmp_path)

    def forget(service):
        service.run()
        service.stop()
        service.forget_database()
        service.start()

    audited.live_with(forget)
    assert any("possible-duplicate" in line["headers"] for line in lines_of(audited.notifications))
    assert audited.findings() == []


def test_a_stash_at_its_bound_is_released_with_a_reason(tmp_path):
    audited = AuditedService(tmp_path, resequencer=ResequencerSettings(stash_limit=2))
    audited.live(losses=0.1)
    assert audited.findings() == []


def test_an_input_that_was_archived_is_read_from_the_archive(tmp_path, monkeypatch):
    monkeypatch.setattr(input_archive, "PIECE_BYTES", 20_000)
    audited = AuditedService(tmp_path)
    audited.live()
    file = tmp_path / "in" / "partition-0.jsonl"
    until = audited.service.stored_positions[0]
    pieces = list(InputArchive(tmp_path / "archive", SystemFiles()).move(file, until))
    assert len(pieces) > 1
    assert audited.findings() == []
    pieces[0].path.unlink()
    with pytest.raises(AuditRefused, match="neither in the input nor in"):
        audited.findings()


def test_an_output_that_is_rotated_while_it_is_audited_is_still_found(tmp_path):
    audited = AuditedService(tmp_path)
    audited.live()

    def rotate():
        audited.notifications.rename(audited.notifications.with_name("notifications.000001.jsonl"))
        audited.notifications.write_bytes(b"")

    audited.meanwhile = rotate
    assert audited.findings() == []


def test_of_an_output_whose_beginning_is_gone_nothing_is_said(tmp_path):
    audited = AuditedService(tmp_path, rotate_bytes=20_000)
    audited.live()
    (tmp_path / "out" / "notifications.000001.jsonl").unlink()
    with pytest.raises(AuditRefused, match="keep-notifications"):
        audited.findings()


def test_without_positions_it_is_unknown_what_had_to_be_there(tmp_path):
    audited = AuditedService(tmp_path)
    audited.live()
    (tmp_path / "out" / "positions.json").write_bytes(b"{")
    with pytest.raises(AuditRefused, match="missing or damaged"):
        audited.findings()


def test_where_there_is_no_input_nothing_is_said(tmp_path):
    with pytest.raises(AuditRefused, match="holds no input"):
        AuditedService(tmp_path).findings()


@pytest.mark.parametrize("version", ["../../../etc", "20260101T000000000Z", "\0"])
def test_content_of_a_version_that_is_not_there_is_not_judged(tmp_path, version):
    audited = AuditedService(tmp_path)
    audited.live()
    lines = lines_of(audited.notifications)
    for line in lines:
        line["headers"]["lookups-version"] = version
        line["value"] = {}
    write_lines(audited.notifications, lines)
    published = [each for each in audited.audit() if each.kind != ARRIVAL]
    assert [each for each in published if each.kind == FINDING or each.is_compared] == []


@pytest.mark.slow
def test_each_notification_is_compared_by_the_version_of_the_lookups_that_it_names(tmp_path, monkeypatch):
    """A process opens each version once, because opening reads it whole."""
    audited = AuditedService(tmp_path)
    directory, handler = LookupsDirectory(tmp_path / "lookups"), audited.service.handler

    def switch(service):
        publish(directory, {SETTINGS: settings_saying(f"settings of {service.clock.now()}")}, now=service.clock.now())
        release = releases.enter_context(closing(open_release(directory, directory.get_current())))
        service.stop()
        service.handler = handler.with_lookups(Lookups(release))
        service.start()

    with ExitStack() as releases:
        audited.live_with(switch)
    versions = {line["headers"].get("lookups-version") for line in lines_of(audited.notifications)}
    assert len(versions) == 2
    opened = []

    def open_and_count(directory, pointer):
        opened.append(pointer.version)
        return open_release(directory, pointer)

    monkeypatch.setattr(notification_service.jobs.audit.replay_handler, "open_release", open_and_count)
    assert [audited.findings() for _ in range(3)] == [[], [], []]
    assert sorted(opened) == sorted(versions - {None})


@pytest.mark.parametrize("refusal", [PermanentError, TooLarge])
def test_what_a_users_own_target_type_refuses_is_explained_by_its_dead_letter(refusal, tmp_path):
    audited = AuditedService(tmp_path, target_type="json:dumps")
    audited.service.handler = Choosy(AuditedService(tmp_path / "other").service.handler, refusal("not this one"))
    audited.live()
    reasons = {line["headers"]["dead-letter-reason"] for line in lines_of(audited.dead_letters)}
    assert refusal.reason in reasons
    assert audited.findings() == []


def test_an_envelope_that_would_have_let_out_too_much_is_found_to_be_too_large_again(tmp_path):
    audited = AuditedService(tmp_path, target_type="produced-report")
    audited.handler_settings = msgspec.structs.replace(audited.handler_settings, max_bytes=6_000)
    audited.service.handler = make_handler(audited.handler_settings, parse_notification_settings(StringIO(TABLE), "settings"))
    audited.live()
    reasons = {line["headers"]["dead-letter-reason"] for line in lines_of(audited.dead_letters)}
    assert "too-large" in reasons
    assert lines_of(audited.notifications)
    assert audited.findings() == []


def test_that_an_envelope_ended_its_worker_is_believed_whatever_the_target_type_is(tmp_path):
    audited = AuditedService(tmp_path)
    audited.service.handler = Choosy(audited.service.handler, EndedItsWorker("its handling ended 3 workers"))
    audited.live()
    reasons = {line["headers"]["dead-letter-reason"] for line in lines_of(audited.dead_letters)}
    assert "ended-its-worker" in reasons
    assert audited.findings() == []


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["SEQUENCE", "FULL_PAIN001"])
def test_of_a_handler_of_ones_own_it_is_believed_what_it_tells_of_and_order_and_ids_are_judged(strategy, tmp_path):
    audited = AuditedService(tmp_path, strategy, handler="harness.spark.odd_ones:OddOnes")
    audited.live()
    published = lines_of(audited.notifications)
    assert {each["value"] for each in published} == {"handled"}
    assert len(published) > 20
    assert lines_of(audited.dead_letters)
    assert audited.findings() == []
    assert not any(each.is_compared for each in audited.audit() if each.kind == PUBLISHED)
    unit = next(key for key, number in Counter(each["key"] for each in published).items() if number > 1)
    write_lines(audited.notifications, [*published, next(each for each in published if each["key"] == unit)])
    assert ("doubled", unit) in audited.findings()
    published[0]["headers"]["notification-id"] = "A" * 32
    write_lines(audited.notifications, published)
    assert audited.findings() != []


@pytest.mark.parametrize("strategy", ["SEQUENCE", "STRICT_SEQUENCE"])
def test_requeued_dead_letters_of_a_unit_of_which_nothing_was_handled_are_in_time(tmp_path, strategy):
    audited = AuditedService(tmp_path, strategy, target_type="json:dumps")
    mapping = audited.service.handler = Mapping(AuditedService(tmp_path / "other").service.handler)
    audited.service.start()
    event = {"eventName": "PaymentReceived", "processFlowName": "PaymentInitiationFlow"}
    lines = [
        envelope_line("uow-1", sequence, processObjects=[{"uniqueId": f"e-{sequence}", "object": event}])
        for sequence in (1, 2, 3)
    ]
    audited.service.put(*lines)
    audited.service.run()
    assert len(audited.service.dead) == 3
    mapping.is_corrected = True
    audited.service.put(*lines)
    audited.service.run()
    published = lines_of(audited.notifications)
    assert [line["headers"]["envelope-id"] for line in published] == ["e-1", "e-2", "e-3"]
    assert not any("late" in line["headers"] for line in published)
    assert audited.findings() == []
    published[0]["headers"]["late"] = "true"
    write_lines(audited.notifications, published)
    assert audited.findings() == [("marked late without a reason", "uow-1")]


@pytest.mark.slow
def test_edited_dead_letters_are_records_as_any_other(tmp_path):
    """Every second edit is still wrong, and so leads to a dead letter of its own."""
    audited = AuditedService(tmp_path)
    audited.live(garbage=0.1, conflicts=0.05)
    event = {"uniqueId": "e", "object": {"eventName": "PaymentReceived", "processFlowName": "PaymentInitiationFlow"}}

    def open_store():
        return closing(FileDeadLetterStore(audited.file_settings(), lambda: Signature("anna", "now")))

    with open_store() as store:
        letters = [each for each in store.letters() if each.letter.reason.value != "unsupported-schema-version"]
        untouched = len(list(store.letters())) - len(letters)
        assert {each.letter.reason.value for each in letters} > {"undecodable", "conflicting-duplicate"}
    for number, each in enumerate(letters):
        good = value_of(envelope_line(f"edited-{number}", 1, identity=f"e-{number}", processObjects=[event]))
        edited = Edit(b"{" if number % 2 else good, "it was wrong")
        with open_store() as store:
            assert [outcome.done for outcome in edit(store, each.number, edited, lambda _: None)] == ["edited"]
    audited.service.start()
    audited.service.run()
    audited.service.stop()
    assert len(lines_of(audited.dead_letters)) == untouched + len(letters) + len(letters) // 2
    published = lines_of(audited.notifications)
    units = {line["key"] for line in published if line["key"].startswith("edited-")}
    assert units == {f"edited-{number}" for number in range(0, len(letters), 2)}
    assert audited.findings() == []
    write_lines(audited.notifications, [line for line in published if line["key"] != "edited-0"])
    assert audited.findings() == [("lost", "edited-0")]


class Mapping:
    """A handler that refuses all envelopes until it is corrected."""

    def __init__(self, handler):
        self._handler = handler
        self.is_corrected = False

    def handle(self, envelope, data, marks, now):
        if not self.is_corrected:
            raise PermanentError("the mapping is wrong")
        return self._handler.handle(envelope, data, marks, now)


class Choosy:
    """A handler that refuses every fifth envelope permanently."""

    def __init__(self, handler, error):
        self._handler = handler
        self._error = error

    def handle(self, envelope, data, marks, now):
        if envelope.digest[0] % 5 == 0:
            raise self._error
        return self._handler.handle(envelope, data, marks, now)


def settings_saying(text):
    """Return the settings of the file with this additional information."""
    rows = (line.split(",") for line in TABLE.splitlines()[1:])
    return shaped({("", flow, event): [status, reason or None, text, None] for flow, event, status, reason, _ in rows})


def broken(handler_or_step, is_hit):
    """Wrap the handler or step, so that it raises on some envelopes."""

    def fail(*arguments, **named):
        if is_hit(arguments):
            raise ArithmeticError("a mistake of ours")
        return handler_or_step(*arguments, **named)

    return fail


MISTAKES = {
    # When the notification is made, by its id.
    "notification_service.payments.process_object_handler.encode_report": lambda arguments: arguments[0][0] in "ABC",
    # When the unit takes the envelope, before anything is counted.
    "resequencer.turn.decide._take": lambda arguments: arguments[1].sequence == 3 and arguments[1].unit[-1] in "0123",
}


@pytest.mark.parametrize("where", MISTAKES)
@pytest.mark.parametrize("strategy", ["SEQUENCE", "FULL_PAIN001"])
def test_what_the_service_set_aside_by_a_mistake_that_is_still_there_is_explained(tmp_path, monkeypatch, where, strategy):
    audited = AuditedService(tmp_path, strategy)
    monkeypatch.setattr(where, broken(resolve(where), MISTAKES[where]))
    audited.live()
    set_aside = [line for line in lines_of(audited.dead_letters) if "service failed" in line["headers"]["dead-letter-error"]]
    assert len(set_aside) > 3
    assert audited.findings() == []


@pytest.mark.slow
@pytest.mark.parametrize("where", MISTAKES)
def test_what_it_set_aside_by_a_mistake_that_was_mended_is_found(tmp_path, monkeypatch, where):
    audited = AuditedService(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(where, broken(resolve(where), MISTAKES[where]))
        audited.live()
    found = audited.findings()
    assert {deviation for deviation, _ in found} >= {"dead letter not explained"}
