"""Faults in the service's code, one for each promise, and the tests that notice them.

The promises are those of the tables and lists of README.md and of docs/contract.md. A test suite that is changed, for instance to
take less time, has to notice every one of these faults still. Plant them, all or some, each in a copy of the project:

    PYTHONPATH=tests .venv/bin/python -m promises.planted [NAME …]
"""

from __future__ import annotations

import sys
from typing import NamedTuple


class PlantedFault(NamedTuple):
    """A mistake that a programmer could make, and what notices it.

    `promise` is what the service no longer keeps, `where` the page and its section that promise it. In `file` the `text`, which
    stands there once, becomes `instead`. At least one of `tests` (node ids of pytest) fails then; without the fault all pass.
    """

    name: str
    promise: str
    where: str
    file: str
    text: str
    instead: str
    tests: tuple[str, ...]

    def planted_in(self, code: str) -> str:
        """Return the code of the file with the fault."""
        assert code.count(self.text) == 1, f"{self.name}: its text does not stand exactly once in {self.file}"
        return code.replace(self.text, self.instead)


_PROMISES = "README.md, Resequencer"
_STORAGE = "README.md, What is promised, and what is not"
_REGIONS = "README.md, Between Kafka, files and JMS queues"
_CONTRACT = "docs/contract.md, {}"
_CALLS = "docs/simulation.md, What happens in a run"

PLANTED = (
    # A kill loses nothing, and nothing is notified twice
    PlantedFault(
        "stashed-counts-as-handled",
        "With storage none, what waits is read again after a kill.",
        _STORAGE,
        "guardian/owned_partition.py",
        "unsettled = [offset for offset in self._just_read if offset in stashed] if stashed else ()",
        "unsettled: Sequence[int] = ()",
        ("tests/service/test_storage_none.py::test_what_was_done_beyond_the_position_rebuilds_its_units_in_silence",),
    ),
    PlantedFault(
        "read-in-a-failed-cycle-counts-as-done",
        "With storage none, what a worker had read when it failed is read again.",
        _STORAGE,
        "guardian/owned_partition.py",
        "self._done_beyond(offset, undone, committed)",
        "self._done_beyond(offset, undone, self.read_to)",
        ("tests/service/test_storage_none.py::test_what_a_worker_read_that_then_failed_does_not_count_as_done",),
    ),
    PlantedFault(
        "pending-dropped-with-its-commit",
        "With storage embedded, a kill between the commit and the publication loses nothing.",
        _STORAGE,
        "storage/embedded/partition.py",
        "connection.execute(_DROP_PENDING, (key, tail.published))\n"
        "    connection.executemany(_ADD_PENDING, [(key, number, bytearray(body)) for number, body in tail.pending.items()])",
        "connection.execute(_DROP_PENDING, (key, header.highest_number if (header := tail.header) else 0))",
        (
            "tests/service/test_promises.py::test_promise_2_a_crash_at_any_step_loses_no_envelope[21]",
            "tests/process/test_life.py::test_kills_at_random_moments_and_at_the_worst_ones_lose_double_and_misplace_nothing",
        ),
    ),
    PlantedFault(
        "embedded-takes-another-attempt",
        "With storage embedded, what was decided anew is not taken for the commit that is stored already.",
        _STORAGE,
        "storage/embedded/commit_log.py",
        "is_ours = found is None or (behind[: found[1]] == record and _entry_at(behind, found[1]) is None)",
        "is_ours = found is None or found[0].token == _decode(self._owner[_FRAME.size :]).token",
        (
            "tests/storage/embedded/test_storage.py::TestEmbeddedContract"
            "::test_deciding_anew_under_a_number_that_may_be_taken_is_refused",
        ),
    ),
    PlantedFault(
        "log-of-another-owner-is-written-to",
        "With storage embedded, a worker that has lost its partition changes nothing.",
        _STORAGE,
        "storage/embedded/commit_log.py",
        "is_ours = size >= self.end and os.pread(self._descriptor, len(self._owner), 0) == self._owner",
        "is_ours = size >= self.end",
        (
            "tests/storage/embedded/test_commit_log.py"
            "::test_a_zombie_adds_nothing_to_the_log_of_the_next_and_takes_nothing_from_it",
        ),
    ),
    PlantedFault(
        "owner-not-announced-in-the-log",
        "With storage embedded, nothing is committed by a worker whose partition is being taken over.",
        _STORAGE,
        "storage/embedded/partition.py",
        "            log.announce(token)\n",
        "",
        ("tests/storage/embedded/test_commit_log.py::test_an_owner_that_announced_itself_and_died_keeps_the_one_before_out",),
    ),
    PlantedFault(
        "torn-record-of-the-log-is-believed",
        "With storage embedded, a commit that a kill has torn was never made.",
        _STORAGE,
        "storage/embedded/commit_log.py",
        "if mark != _MARK or len(body) != length or crc32(body) != checksum:",
        "if mark != _MARK or len(body) != length:",
        ("tests/storage/embedded/test_commit_log.py::test_a_commit_that_is_torn_anywhere_was_never_made[garble]",),
    ),
    PlantedFault(
        "log-is-emptied-before-its-checkpoint",
        "With storage embedded, a kill at any step of a checkpoint loses nothing.",
        _STORAGE,
        "storage/embedded/partition.py",
        "            if not tail.commits:\n                return\n",
        "            if not tail.commits:\n                return\n            self._log.forget_all()\n",
        (
            "tests/storage/embedded/test_crash.py"
            "::test_a_checkpoint_interrupted_after_any_step_changes_nothing_and_the_same_again_ends_it",
        ),
    ),
    PlantedFault(
        "log-is-not-synced",
        "With storage embedded, what was reported as committed is on the disk.",
        _STORAGE,
        "storage/embedded/commit_log.py",
        "        os.fdatasync(self._descriptor)\n",
        "",
        ("tests/storage/embedded/test_power_cut.py::test_the_power_may_go_at_any_call[settings0]",),
    ),
    PlantedFault(
        "uncommitted-change-is-checkpointed",
        "With storage embedded, only what was committed is in the database, whatever was decided.",
        _STORAGE,
        "storage/embedded/partition.py",
        "        read, self._tried = read_commit(commit), commit.attempt\n",
        "        read, self._tried = read_commit(commit), commit.attempt\n        self._tail.add(commit, read)\n",
        ("tests/storage/embedded/test_commit_log.py::test_only_bytes_that_were_committed_reach_the_database",),
    ),
    PlantedFault(
        "redis-lets-a-former-owner-commit",
        "With storage redis, a worker that has lost its partition changes nothing.",
        "README.md, On real servers",
        "storage/redis/scripts.py",
        "if not is_done and not (is_ours and stored[2] == ARGV[2]) then",
        "if not is_done and stored[2] ~= ARGV[2] then",
        (
            "tests/storage/redis/test_storage.py::TestRedisContract"
            "::test_a_zombie_that_opened_late_does_not_stop_the_rightful_owner_for_long",
        ),
    ),
    PlantedFault(
        "infinispan-takes-another-attempt",
        "With storage infinispan, what was decided anew is not taken for the commit that is stored already.",
        "README.md, On real servers",
        "storage/infinispan/partition.py",
        "if tried is not None and tried.prepared.segment.attempt != commit.attempt:",
        "if tried is not None and tried.prepared.version.commit != commit.number:",
        (
            "tests/storage/infinispan/test_storage.py::TestInfinispanContract"
            "::test_deciding_anew_under_a_number_that_may_be_taken_is_refused",
        ),
    ),
    PlantedFault(
        "none-on-kafka-forgets-what-is-done",
        "From Kafka to Kafka it is exactly once, with storage none, too.",
        _REGIONS,
        "guardian/owned_partition.py",
        "self._waits_for_handled and (self._done_characters is not None or len(self.positions.unsettled) < _MANY_RANGES)",
        "self._waits_for_handled and self._done_characters is None and len(self.positions.unsettled) < _MANY_RANGES",
        ("tests/service/test_done_ahead_on_kafka.py::test_where_retention_took_only_what_was_done_reading_goes_on_behind_it",),
    ),
    PlantedFault(
        "last-number-published-again",
        "Nothing is notified twice when a worker on Kafka is killed.",
        _PROMISES,
        "guardian/takeover.py",
        "each.number > published and each.number not in beyond",
        "each.number >= published and each.number not in beyond",
        (
            "tests/guardian/test_takeover.py::test_what_the_position_does_not_count_as_published_is_still_to_leave",
            "tests/process/test_kafka.py::test_every_promise_holds_though_the_worker_is_killed",
        ),
    ),
    PlantedFault(
        "published-for-a-partition-of-another",
        "A worker publishes nothing for a partition that another worker has by now.",
        _PROMISES,
        "notification_service/connectors/kafka/reading.py",
        "        self._refuse_not_owned(remaining)\n",
        "        self._look_again()\n",
        (
            "tests/notification_service/connectors/kafka/test_ownership.py::test_a_partition_that_is_not_ours_is_not_published_for",
        ),
    ),
    PlantedFault(
        "audit-overlooks-a-lost-one",
        "The audit finds each notification that is not there.",
        _CONTRACT.format("2. Command line"),
        "notification_service/jobs/audit/unit_audit.py",
        "if each.trigger < self.settled:",
        "if each.offset < 0 and each.trigger < self.settled:",
        (
            "tests/notification_service/jobs/spark/processes/test_audit.py::test_of_what_a_service_let_out_a_line_that_is_gone_is_named",
        ),
    ),
    PlantedFault(
        "verify-overlooks-a-lost-one",
        "The command verify finds each notification that is not there.",
        _CONTRACT.format("2. Command line"),
        "notification_service/simulator/verify/verification.py",
        "if identifier not in seen and not envelope.is_lost and not is_set_aside:",
        "if identifier not in seen and envelope.is_lost and not is_set_aside:",
        ("tests/notification_service/simulator/verify/test_verification.py::test_a_notification_that_is_not_there_is_lost",),
    ),
    # Handlers that wait
    PlantedFault(
        "next-call-beside-a-lingering-one",
        "Of each unit one call runs at a time, also after a time-out.",
        _CALLS,
        "guardian/calls.py",
        "return (key for key in self._waiting if key not in self._lingering)",
        "return (key for key in self._waiting)",
        (
            "tests/guardian/test_calls.py"
            "::test_a_call_that_timed_out_is_cancelled_and_holds_the_next_call_of_its_unit_until_it_ends",
        ),
    ),
    PlantedFault(
        "answer-after-the-time-out-counts",
        "An answer that comes after processing-timeout does not count.",
        _CALLS,
        "guardian/calls.py",
        "        if at - running.began_at > self._timeout:\n",
        "        if at < running.began_at:\n",
        ("tests/guardian/test_calls.py::test_a_time_out_counts_to_the_instant_of_the_answer_and_not_to_when_it_is_taken_up",),
    ),
    PlantedFault(
        "answer-of-another-attempt-counts",
        "An answer counts for the attempt that it was called for, and for no other.",
        _CALLS,
        "resequencer/turn/release.py",
        "if not answer.call.is_of(retry.entry.offset, retry.attempts):",
        "if answer.call.envelope.offset != retry.entry.offset:",
        ("tests/resequencer/turn/test_calls.py::test_an_answer_of_another_call_has_no_effect",),
    ),
    PlantedFault(
        "release-ends-at-its-first-call",
        "A release continues after the answer of a handler that waits.",
        _CALLS,
        "resequencer/turn/release.py",
        "        _continue_release(turn, retry.cause)\n",
        "        turn.unmark()\n",
        ("tests/resequencer/turn/test_calls.py::test_a_release_continues_after_each_answer_with_the_same_marks[1099511627776]",),
    ),
    PlantedFault(
        "attempts-forgotten-behind-another-call",
        "An envelope has no more attempts than max-attempts.",
        _CALLS,
        "resequencer/turn/release.py",
        "    turn.tried = retry.behind\n",
        "",
        ("tests/resequencer/turn/test_calls.py::test_the_attempts_of_a_head_count_though_others_are_called_before_it",),
    ),
    PlantedFault(
        "freed-ones-lack-what-has-come",
        "What is marked incomplete lacks what the mark says.",
        _CONTRACT.format("6. Notifications: key, headers, marks"),
        "resequencer/turn/turn.py",
        "if self.incomplete is not None and unit.gathered_to > gathered_to:",
        "if self.incomplete is not None and unit.gathered_to < gathered_to:",
        ("tests/resequencer/turn/test_calls.py::test_what_a_release_frees_after_more_has_come_is_not_said_to_lack_that",),
    ),
    # The order, the strategies, the marks
    PlantedFault(
        "stash-in-order-of-arrival",
        "Notifications of a payment leave in order, also those of envelopes that waited.",
        _PROMISES,
        "resequencer/unit.py",
        "return Entry((lane, place, record.origin[1]), envelope, at, size, learned_wait_ms)",
        "return Entry((lane, record.origin[1], place), envelope, at, size, learned_wait_ms)",
        (
            "tests/service/test_exactly_once_on_files.py::test_envelopes_leave_in_order",
            "tests/process/test_life.py::test_lines_appended_by_hand_out_of_order_are_notified_in_order",
        ),
    ),
    PlantedFault(
        "given-up-number-counted-again",
        "SEQUENCE keeps the exact order of the payment, also behind a number that came after it was given up.",
        _STORAGE,
        "resequencer/strategies/sequence.py",
        "counts = number > last and given_up is state.given_up",
        "counts = number > last",
        ("tests/resequencer/strategies/test_sequence_deadline.py::test_a_late_number_of_another_flow_is_not_counted_twice",),
    ),
    PlantedFault(
        "flows-share-a-lane",
        "STRICT_SEQUENCE waits for the numbers before of the same flow, and of no other.",
        _STORAGE,
        "resequencer/strategies/sequence.py",
        "return Rank(envelope.flow, number_of(envelope))",
        'return Rank("", number_of(envelope))',
        (
            "tests/resequencer/strategies/test_strict_sequence.py::test_a_flow_that_waits_does_not_hold_back_what_waited_in_another",
        ),
    ),
    PlantedFault(
        "named-data-not-waited-for",
        "FULL_PAIN001_AND_CUSTOM_DATA waits for the data that custom-data-keys names.",
        _STORAGE,
        "resequencer/strategies/completeness.py",
        "return len(state.parts) == len(self.required)",
        "return len(state.parts) >= len(PAIN_001_PARTS)",
        ("tests/resequencer/strategies/test_completeness.py::test_the_named_data_is_waited_for_too",),
    ),
    PlantedFault(
        "mark-behind-the-attempt",
        "What leaves at the deadline is marked incomplete and says what was missing.",
        _STORAGE,
        "resequencer/turn/release.py",
        "        turn.incomplete = turn.missing(entry)\n"
        "        turn.unit.remove(entry)\n"
        "        turn.attempt(entry.envelope, entry, is_forced=True)\n",
        "        copy.stash = copy.stash.without(entry)\n"
        "        attempt(copy, entry, is_forced=True)\n"
        "        copy.incomplete = copy.missing(entry)\n",
        (
            "tests/resequencer/strategies/test_sequence_deadline.py::test_a_lost_first_event_is_released_only_at_the_deadline",
            "tests/process/test_life.py::test_a_deadline_stands_where_it_stood_before_a_restart",
        ),
    ),
    PlantedFault(
        "deadline-in-front-of-unread-records",
        "The deadline is later while the partition has unread records, among which the missing envelope may be.",
        _STORAGE,
        "guardian/unit_registry.py",
        "self._backlog.hold(key, ends.get(key.partition, 0))",
        "self._backlog.hold(key, read_to.get(key.partition, 0))",
        ("tests/service/test_exactly_once_on_files.py::test_a_backlog_read_after_an_outage_makes_nothing_incomplete",),
    ),
    PlantedFault(
        "late-in-its-own-flow-only",
        "With SEQUENCE, what was given up and follows a later envelope of another flow is marked late.",
        _CONTRACT.format("6. Notifications: key, headers, marks"),
        "resequencer/strategies/sequence.py",
        "return any(number < handled_to(state.observed, state.dead_ends, flow) for flow, _ in state.observed)",
        "return False",
        ("tests/resequencer/turn/test_late.py::test_late_is_exactly_what_follows_a_later_one_that_was_handled",),
    ),
    PlantedFault(
        "marked-below-the-position-only",
        "After a storage was lost, what may have left before is marked possible-duplicate.",
        _STORAGE,
        "guardian/takeover.py",
        "reached = position.offset if position is not None and metadata is not None and not is_ahead else log.stop",
        "reached = position.offset if position is not None and metadata is not None else log.stop",
        (
            "tests/service/test_exactly_once_on_files.py"
            "::test_after_a_crash_before_the_storage_was_lost_what_left_beyond_the_position_repeats_marked",
        ),
    ),
    PlantedFault(
        "loss-of-a-storage-not-noticed",
        "A storage that was lost is noticed at the next start, and its records are read again.",
        _STORAGE,
        "guardian/takeover.py",
        "return metadata.commit <= known.get(metadata.token, -1)",
        "return metadata.commit <= known.get(metadata.token, metadata.commit)",
        ("tests/guardian/test_takeover.py::test_a_commit_that_the_storage_has_not_made_means_that_it_forgot",),
    ),
    PlantedFault(
        "repetitions-not-marked",
        "If the storage is empty and the topic is not, the service reads again, and marks what it sends again.",
        "README.md, On real servers",
        "guardian/takeover.py",
        "heal_offset = max(header.heal_offset, reached)",
        "heal_offset = header.heal_offset",
        (
            "tests/service/test_exactly_once_on_files.py"
            "::test_only_after_the_storage_forgot_anything_repeats_and_then_it_says_so",
            "tests/process/test_storage_on_a_server.py"
            "::test_a_server_that_forgot_everything_costs_nothing_but_marked_repetitions[redis, while the worker runs]",
        ),
    ),
    # Duplicates, dead letters, retention, the disk
    PlantedFault(
        "duplicate-of-a-stashed-one-kept",
        "A second record of the same event is dropped, also while the first one waits.",
        _CONTRACT.format("5. Ids"),
        "resequencer/unit.py",
        "return None if entry is None else entry.envelope.digest",
        "return None",
        ("tests/resequencer/turn/test_duplicates.py::test_a_duplicate_of_a_stashed_one_is_dropped",),
    ),
    PlantedFault(
        "conflict-dropped-as-a-duplicate",
        "Another envelope with a known id is a dead letter conflicting-duplicate.",
        _CONTRACT.format("9. Dead letters"),
        "resequencer/turn/decide.py",
        "if digest == envelope.digest:",
        "if digest is not None:",
        (
            "tests/resequencer/turn/test_duplicates.py"
            "::test_the_same_id_with_another_content_is_a_dead_letter_and_the_first_one_stands",
        ),
    ),
    PlantedFault(
        "dead-letter-put-on-one-line",
        "A dead letter has the exact bytes of its record.",
        _CONTRACT.format("9. Dead letters"),
        "notification_service/connectors/files/sink.py",
        "value = record.value if is_dead or record.prefix else _on_one_line(record.value)",
        "value = _on_one_line(record.value)",
        ("tests/notification_service/connectors/files/test_sink.py::test_a_dead_letter_fed_back_as_input_has_its_exact_bytes",),
    ),
    PlantedFault(
        "passed-through-value-put-on-one-line",
        "With the handler pass-through a record leaves as it came: key, value and headers.",
        _CONTRACT.format("19. Events of other formats"),
        "notification_service/connectors/files/sink.py",
        "is_dead or record.prefix else",
        "is_dead else",
        ("tests/notification_service/connectors/files/test_sink.py::test_a_record_that_leaves_as_it_came_keeps_its_lines",),
    ),
    PlantedFault(
        "missing-sequence-told-as-an-invalid-one",
        "A record without a sequence has the reason no-sequence.",
        _CONTRACT.format("9. Dead letters"),
        "notification_service/events/format.py",
        'if raw == b"null":',
        "if not raw:",
        ("tests/notification_service/events/test_decoding.py::test_a_missing_sequence_matters_only_where_it_is_needed",),
    ),
    PlantedFault(
        "requeue-appended-again",
        "A dead letter is sent again once, also if the command is killed and given again.",
        _STORAGE,
        "notification_service/connectors/files/partition.py",
        "for number, each in wanted.items() if number not in found and each.line is not None]",
        "for number, each in wanted.items() if each.line is not None]",
        (
            "tests/notification_service/connectors/files/test_requeue.py::test_a_crash_at_any_operation_loses_nothing_and_doubles_nothing",
        ),
    ),
    PlantedFault(
        "retention-counts-while-behind",
        "The retention counts only while the partition is caught up.",
        _STORAGE,
        "guardian/owned_partition.py",
        "is_caught_up, self._log_end = self.read_to >= end and not self.orders.is_paused, end",
        "is_caught_up, self._log_end = not self.orders.is_paused, end",
        ("tests/service/test_absence.py::test_time_in_which_records_lie_unread_does_not_count",),
    ),
    PlantedFault(
        "output-without-a-sync",
        "Output counts only when it is on the disk: one that fails is waited for.",
        _STORAGE,
        "notification_service/connectors/files/output.py",
        "                write_all(self._files, self._opened, lines)\n                self._files.fsync(self._opened)\n",
        "                write_all(self._files, self._opened, lines)\n",
        (
            "tests/notification_service/connectors/files/test_sink_failures.py::test_what_a_failed_sync_may_have_lost_is_written_again",
            "tests/process/test_failing_disk.py"
            "::test_an_output_that_fails_is_away_until_it_does_not[out/notifications.jsonl-SYNC-EIO]",
        ),
    ),
    PlantedFault(
        "full-disk-ends-the-worker",
        "If the disk is full, the service waits, says so, and goes on by itself.",
        _STORAGE,
        "storage/embedded/errors.py",
        "    sqlite3.SQLITE_FULL,\n",
        "",
        ("tests/process/test_failing_disk.py::test_a_storage_that_fails_is_away_until_it_does_not[state.db-wal-WRITE-ENOSPC]",),
    ),
    # Ids, headers, values, settings, configuration
    PlantedFault(
        "notification-id-without-separators",
        "The notification id is the documented digest, the same from version to version.",
        _CONTRACT.format("5. Ids"),
        "resequencer/notification.py",
        'return short_digest(f"{unit}\\0{event_id}\\0{index}".encode())',
        'return short_digest(f"{unit}{event_id}{index}".encode())',
        ("tests/docs/test_contract.py::test_the_notification_id_of_the_page_is_right",),
    ),
    PlantedFault(
        "entity-of-the-customer-left-out",
        "The header processing-entity is that of the customer if the envelope names none.",
        _CONTRACT.format("6. Notifications: key, headers, marks"),
        "notification_service/payments/process_object_handler.py",
        "key = entity, event.process_flow_name, event.event_name",
        "key = envelope.processing_entity, event.process_flow_name, event.event_name",
        (
            "tests/notification_service/payments/test_lookups.py::test_a_customer_is_found_by_the_party_and_gives_entity_and_headers",
        ),
    ),
    PlantedFault(
        "group-status-of-many",
        "GrpSts is there only if the message has one payment.",
        _CONTRACT.format("7. Values: the target types"),
        "notification_service/payments/target_types.py",
        'group_status if original.is_single else b"",',
        "group_status,",
        (
            "tests/notification_service/payments/test_status_report.py"
            "::test_the_group_has_a_status_only_where_it_had_one_transaction_and_knows_the_code",
        ),
    ),
    PlantedFault(
        "reason-of-a-rejection-dropped",
        "The reason of the event counts for RJCT, also where the row has none.",
        _CONTRACT.format("8. Notification settings"),
        "notification_service/payments/target_types.py",
        "if reason_code is not None and (setting.reason_code is not None or setting.transaction_status == _REJECTED):",
        "if reason_code is not None and setting.reason_code is not None:",
        (
            "tests/notification_service/payments/test_status_report.py::test_a_rejection_without_a_reason_in_the_settings_takes_the_events",
        ),
    ),
    PlantedFault(
        "nearest-key-of-any-name",
        "A mistyped key is refused with the nearest known one, and exit code 3.",
        _CONTRACT.format("3. Configuration"),
        "notification_service/configuration/schema.py",
        "get_close_matches(path, known, 1, 0.6)",
        "get_close_matches(last, known, 1, 0.6)",
        (
            "tests/notification_service/commands/check/test_check.py::test_a_mistyped_key_ends_with_three_and_names_the_right_one",
            "tests/process/test_refusals.py::test_a_refused_configuration_is_a_line_and_creates_nothing",
        ),
    ),
    PlantedFault(
        "status-zero-for-any-report",
        "The command status ends with 0 only if the service is ready.",
        _CONTRACT.format("2. Command line"),
        "notification_service/commands/status.py",
        "return ExitCode.DONE if state == State.READY else ExitCode.FAILED",
        "return ExitCode.DONE if service else ExitCode.FAILED",
        ("tests/process/test_status.py::test_after_a_stop_it_is_not_running",),
    ),
    PlantedFault(
        "interrupt-does-not-drain",
        "The first SIGTERM or SIGINT drains, and ends the service with 0.",
        _CONTRACT.format("2. Command line"),
        "notification_service/supervision/stop_signal.py",
        "for each in (signal.SIGTERM, signal.SIGINT):",
        "for each in (signal.SIGTERM,):",
        ("tests/process/test_life.py::test_an_interrupt_from_the_keyboard_drains_too",),
    ),
    PlantedFault(
        "one-unit-page-says-nothing",
        "Every wait is visible: the payment, what it waits for, since when and until when.",
        _PROMISES,
        "notification_service/console/unit_story.py",
        "return Wait(waits.shown_waits_for, waits.kind.value, since, until,",
        "return Wait(waits.strategy, waits.kind.value, since, until,",
        ("tests/browser/test_console.py::test_who_has_only_an_id_learns_whether_it_is_here_and_what_it_waits_for[files]",),
    ),
    # Files, orders, facts, groups
    PlantedFault(
        "rotated-before-what-left-is-noted",
        "Full output files are rotated, and no line is written twice.",
        _CONTRACT.format("10. Files"),
        "notification_service/connectors/files/sink.py",
        "            self._write_durably()\n            for output in full:\n",
        "            for output in full:\n",
        (
            "tests/notification_service/connectors/files/test_rotation.py::test_what_left_beyond_its_position_is_remembered_over_a_rotation",
        ),
    ),
    PlantedFault(
        "order-for-an-earlier-wait",
        "A release is refused if the unit waits since another instant now.",
        _CONTRACT.format("12. Orders"),
        "resequencer/turn/orders.py",
        "if order.waits_for in (waits.waits_for, waits.shown_waits_for) and waits.since == order.since:",
        "if order.waits_for in (waits.waits_for, waits.shown_waits_for):",
        ("tests/resequencer/turn/test_orders.py::test_an_order_for_an_earlier_wait_for_the_same_is_refused",),
    ),
    PlantedFault(
        "order-in-front-of-unread-records",
        "A release waits until the records are read that were unread when its owner read it.",
        _CONTRACT.format("12. Orders"),
        "guardian/unit_registry.py",
        "waits.kind is WaitKind.ORDERED and end <= read_to.get(key.partition, -1):",
        "waits.kind is WaitKind.ORDERED:",
        (
            "tests/guardian/test_unit_registry.py::test_an_order_is_executed_when_its_partition_was_read_up_to_where_its_log_ended",
            "tests/service/test_orders.py::test_a_missing_envelope_among_the_unread_records_ends_the_order",
        ),
    ),
    PlantedFault(
        "no-fact-of-a-suppressed-status",
        "Each status of a payment leaves as a fact, also if its notification is suppressed.",
        _CONTRACT.format("15. Facts"),
        "notification_service/payments/process_object_handler.py",
        "if not self._makes_facts:",
        "if True:",
        ("tests/notification_service/payments/test_facts.py::test_a_suppressed_status_is_a_fact_too",),
    ),
    PlantedFault(
        "facts-of-a-crash-written-again",
        "A fact leaves exactly once.",
        _CONTRACT.format("15. Facts"),
        "notification_service/connectors/files/sink.py",
        "if record.channel is channel and not self._has_left(each.partition, record.number)",
        "if record.channel is channel and (channel is Channel.FACTS or not self._has_left(each.partition, record.number))",
        (
            "tests/notification_service/connectors/files/test_sink.py::test_facts_that_left_after_the_position_was_written_are_not_written_again",
        ),
    ),
    PlantedFault(
        "pushed-again-after-a-resume",
        "A client that hands in the last id gets each completion of a store once.",
        _CONTRACT.format("16. Groups"),
        "notification_service/console/stores/stream.py",
        "if each.offset < self._at.get(each.partition, 0):",
        "if each.offset < 0:",
        (
            "tests/notification_service/console/groups/test_completion_stream.py::test_a_listener_resumes_at_another_console",
            "tests/notification_service/console/groups/test_completion_stream.py"
            "::test_who_resumes_again_and_again_is_told_all_once",
        ),
    ),
    PlantedFault(
        "web-socket-of-another-origin",
        "A browser opens a web socket from a page of the console alone.",
        _CONTRACT.format("16. Groups"),
        "notification_service/console/access/layer.py",
        '(scope["type"] == "websocket" and _is_foreign(connection))',
        "False",
        ("tests/notification_service/console/stores/test_web_socket.py::test_a_page_of_another_origin_opens_none",),
    ),
    PlantedFault(
        "group-completed-beyond-what-holds",
        "GrpSts of payments with ACSC and ACCC is ACSC, which holds for all.",
        _CONTRACT.format("16. Groups"),
        "notification_service/aggregation/payments/report.py",
        'return "ACSC"',
        'return "ACCC"',
        ("tests/notification_service/aggregation/payments/test_group_status.py::test_the_status_of_a_group",),
    ),
    # Several kinds of sources and sinks
    PlantedFault(
        "region-goes-on-where-the-first-sink-is",
        "With several sinks, each gets everything exactly once.",
        _REGIONS,
        "notification_service/connectors/region_transport.py",
        "min(known, key=_progress, default=None)",
        "max(known, key=_progress, default=None)",
        (
            "tests/notification_service/connectors/region/test_transport.py"
            "::test_the_position_is_that_of_the_sink_that_is_behind_and_highest_that_of_the_sink_that_is_ahead",
            "tests/process/test_regions.py::test_several_sinks_are_each_exactly_once_while_the_worker_is_killed[jms-sinks0]",
        ),
    ),
    PlantedFault(
        "jms-sends-the-last-one-again",
        "To JMS it is exactly once: what the marker counts is not sent again.",
        _REGIONS,
        "notification_service/connectors/jms/sink.py",
        "if record.number > found[partition].marker.highest",
        "if record.number >= found[partition].marker.highest",
        (
            "tests/notification_service/connectors/jms/test_contracts.py::TestJmsSink::test_records_that_come_again_are_passed_over_by_their_numbers",
        ),
    ),
    PlantedFault(
        "jms-properties-under-their-own-names",
        "The property schema_version of a JMS message is the header schema-version, and so is each name of ours.",
        _CONTRACT.format("17. JMS queues"),
        "notification_service/connectors/jms/messages.py",
        "headers = tuple((_OURS.get(str(name), str(name)), _bytes_of(each))",
        "headers = tuple((str(name), _bytes_of(each))",
        (
            "tests/notification_service/connectors/jms/test_source.py::test_properties_are_headers_and_the_correlation_id_is_the_key",
        ),
    ),
    PlantedFault(
        "mqtt-counts-what-is-not-confirmed",
        "To MQTT with qos 1 and 2 it is at least once: what the broker has not confirmed is sent again.",
        _REGIONS,
        "notification_service/connectors/mqtt/sink.py",
        "self._published.note(remaining[: sending.confirmed])",
        "self._published.note(remaining)",
        (
            "tests/notification_service/connectors/mqtt/test_sink.py"
            "::test_a_broker_that_does_not_answer_leaves_the_call_undecided_and_the_same_call_ends_it",
        ),
    ),
    PlantedFault(
        "mqtt-mixes-a-unit-up",
        "To MQTT, too, the messages of a unit come in order.",
        _REGIONS,
        "notification_service/connectors/mqtt/sink.py",
        "lane = place if unit is None else (partition, unit)",
        "lane = (partition, place)",
        (
            "tests/notification_service/connectors/mqtt/test_sending.py::test_it_is_over_when_each_message_is_confirmed_and_units_stay_in_order",
        ),
    ),
    PlantedFault(
        "bridge-acknowledges-first",
        "The bridge acknowledges a message only when it is durably appended.",
        "README.md, From MQTT and IBM MQ",
        "notification_service/bridge/runner.py",
        '        with _answering("start"):\n'
        "            if not self._append(start):\n"
        "                return\n"
        '        with _answering("source"):\n'
        "            source.acknowledge()\n",
        '        with _answering("source"):\n'
        "            source.acknowledge()\n"
        '        with _answering("start"):\n'
        "            if not self._append(start):\n"
        "                return\n",
        (
            "tests/notification_service/bridge/test_runner.py::test_a_message_is_acknowledged_after_it_was_appended",
            "tests/process/test_bridge.py::test_the_broker_keeps_what_comes_while_the_start_is_away",
        ),
    ),
    PlantedFault(
        "bridge-cuts-what-was-under-way-with-it",
        "Of a message that the topic does not take for its size the beginning is appended; what is taken with it stays whole.",
        _CONTRACT.format("9. Dead letters"),
        "notification_service/bridge/runner.py",
        "            if self._alone is not None:\n                self._shorten(self._alone, error)\n",
        "            for at in range(len(self._taken)):\n                self._shorten(at, error)\n",
        (
            "tests/notification_service/bridge/test_runner.py::"
            "test_of_a_message_that_the_start_never_takes_the_beginning_is_appended_and_what_is_behind_it_comes_whole",
        ),
    ),
    PlantedFault(
        "queue-bounded-by-count-alone",
        "A queue's messages that are not taken are bounded by their bytes.",
        _CONTRACT.format("17. JMS queues"),
        "notification_service/connectors/jms/receiving_link.py",
        "return not here or here + (0 if arriving is None else arriving.held) < _MAX_BYTES",
        "return True",
        (
            "tests/notification_service/connectors/jms/test_source.py::test_what_waits_is_bounded_by_its_bytes_and_all_of_it_comes",
        ),
    ),
    PlantedFault(
        "queue-that-waits-for-ever",
        "While more of a queue has come than there is room for, the broker waits: the rest comes when there is room.",
        _CONTRACT.format("17. JMS queues"),
        "notification_service/connectors/jms/receiving_link.py",
        "        if self._is_full and self._has_room():\n            self._post(self._read_on)\n",
        "",
        (
            "tests/notification_service/connectors/jms/test_source.py::test_what_waits_is_bounded_by_its_bytes_and_all_of_it_comes",
        ),
    ),
    # Delivery
    PlantedFault(
        "ledger-lets-a-later-one-go-first",
        "Delivery brings the notifications of a payment in order, also one that is delivered again.",
        "README.md, Delivery by HTTP",
        "notification_service/delivery/ledger/finishing.py",
        "if key not in heads or (heads[key][0] != row and not heads[key][1])}",
        "if key not in heads or heads[key][0] != row}",
        (
            "tests/notification_service/delivery/ledger/test_rows.py"
            "::test_a_failed_row_is_delivered_again_before_a_later_one_whose_call_must_be_repeated[postgresql-announce]",
        ),
    ),
    PlantedFault(
        "ledger-takes-a-late-result",
        "The result of a call whose row another delivery worker has by now changes nothing.",
        "README.md, Delivery by HTTP",
        "notification_service/delivery/ledger/finishing.py",
        'if row is None or row["epoch"] != claim.epoch or row["owner"] is None:',
        'if row is None or row["owner"] is None:',
        (
            "tests/notification_service/delivery/ledger/test_rows.py::test_a_late_result_of_a_former_owner_changes_nothing_and_is_counted[postgresql]",
        ),
    ),
    PlantedFault(
        "repeated-call-under-another-key",
        "A call that is made again has the same idempotency key.",
        "README.md, Delivery by HTTP",
        "notification_service/delivery/caller.py",
        '(b"idempotency-key", call.notification_id.encode())]',
        '(b"idempotency-key", f"{call.notification_id}-{time()}".encode())]',
        ("tests/notification_service/delivery/test_caller.py::test_a_delivery_is_the_value_with_its_id_as_idempotency_key",),
    ),
    PlantedFault(
        "key-goes-on-before-the-dead-letter-left",
        "Straight from a topic, the next record of a key waits until the dead letter of the one before has left.",
        _CONTRACT.format("13. Retry topics"),
        "notification_service/delivery/direct/core/partition.py",
        "self._departures.add(Departure(leaving, record.offset, record.lane))",
        "self._departures.add(Departure(leaving, record.offset))\n            self._lanes.advance(record.lane)",
        (
            "tests/notification_service/delivery/direct/core/test_partition.py"
            "::test_the_next_of_a_lane_waits_until_the_dead_letter_of_its_head_has_left",
        ),
    ),
    PlantedFault(
        "attempts-of-one-topic-only",
        "The header delivery-attempts counts all calls that have failed so far.",
        _CONTRACT.format("13. Retry topics"),
        "notification_service/delivery/direct/core/decision.py",
        "attempts=opened.way.attempts + opened.attempts",
        "attempts=opened.attempts",
        (
            "tests/notification_service/delivery/direct/test_retry_topics.py"
            "::test_each_record_comes_at_its_time_and_is_a_dead_letter_when_all_intervals_are_over",
        ),
    ),
    PlantedFault(
        "request-id-without-its-tick",
        "A request of a schedule has an id of its own for each tick and key.",
        _CONTRACT.format("14. Requests of schedules"),
        "notification_service/delivery/schedules/core.py",
        'b"\\x00".join((schedule.encode(), str(tick).encode(), key))',
        'b"\\x00".join((schedule.encode(), key))',
        (
            "tests/notification_service/delivery/schedules/core/test_request.py::test_the_id_is_that_of_schedule_tick_and_key_alone_and_never_changes",
            "tests/notification_service/delivery/schedules/test_sinks.py::test_each_key_has_one_request_at_each_tick[postgresql]",
        ),
    ),
    PlantedFault(
        "header-of-ours-from-a-handler",
        "A user's own handler that gives a header of the service costs its event a dead letter.",
        _CONTRACT.format("19. Events of other formats"),
        "notification_service/events/own_handler.py",
        "if (reserved := find_reserved(own)) is not None:",
        "if (reserved := find_reserved(())) is not None:",
        ("tests/notification_service/events/test_own_handler.py::test_a_header_of_the_service_is_refused",),
    ),
    PlantedFault(
        "format-that-ends-its-worker",
        "Whatever a user's own format raises makes its record a dead letter.",
        _CONTRACT.format("19. Events of other formats"),
        "resequencer/users_code.py",
        "except BaseException as error:  # Foreign code may raise anything.\n        if type(error)",
        "except Exception as error:\n        if type(error)",
        ("tests/notification_service/events/test_own_format.py::test_what_it_raises_is_the_error_of_the_dead_letter",),
    ),
    PlantedFault(
        "requeued-unmarked",
        "What follows from a dead letter that may be a repetition is marked, also after it was requeued.",
        _CONTRACT.format("4. Envelopes: the records that come in"),
        "notification_service/connectors/dead_letters/actions.py",
        "if is_marked else ()",
        "if not own else ()",
        (
            "tests/service/test_requeued_repetitions.py"
            "::test_a_dead_letter_and_its_repetition_are_requeued_and_what_follows_from_the_second_is_marked",
        ),
    ),
    # Events of other formats
    PlantedFault(
        "another-format-begins",
        "What is stored in one format of events is not continued in another one.",
        _CONTRACT.format("19. Events of other formats"),
        "guardian/partitions.py",
        "if store.header.is_empty or stored == settings.events or not self._storage.is_durable:",
        "if store.header.is_empty or stored == settings.events or self._storage.is_durable:",
        ("tests/guardian/test_another_format.py::test_a_start_is_refused_while_something_waits_and_also_while_nothing_does",),
    ),
    PlantedFault(
        "another-format-unmarked",
        "After another format was accepted, output of what came until then is marked.",
        _CONTRACT.format("19. Events of other formats"),
        "guardian/partitions.py",
        "heal_offset=max(plan.heal_offset, end)",
        "heal_offset=plan.heal_offset",
        ("tests/guardian/test_another_format.py::test_what_came_until_an_operator_accepts_it_is_marked_and_nothing_later",),
    ),
    PlantedFault(
        "entry-of-another-unit",
        "What waits and is of another unit in the format of today is a dead letter.",
        _CONTRACT.format("19. Events of other formats"),
        "resequencer/unit_codec.py",
        "if envelope.unit != unit:",
        "if not envelope.unit:",
        ("tests/guardian/test_another_format.py::test_what_is_of_another_unit_now_is_a_dead_letter_at_its_deadline",),
    ),
    PlantedFault(
        "binary-value-typed",
        "A dead letter of other events whose value is not text is edited from a file alone.",
        _CONTRACT.format("19. Events of other formats"),
        "notification_service/console/dead_letter_pages.py",
        "if not self.can_be_typed(stored):",
        "if not stored:",
        (
            "tests/notification_service/console/test_pages.py"
            "::test_of_other_events_a_value_that_is_not_text_is_edited_in_a_file_alone",
        ),
    ),
    PlantedFault(
        "null-becomes-empty",
        "From Kafka to Kafka a null value stays null.",
        _CONTRACT.format("19. Events of other formats"),
        "guardian/pending_output.py",
        "fields = (each.channel, each.key, each.headers, each.value)",
        'fields = (each.channel, each.key, each.headers, each.value or b"")',
        (
            "tests/notification_service/connectors/kafka/test_passed_through.py::test_key_value_headers_and_timestamp_are_as_they_came",
        ),
    ),
    PlantedFault(
        "null-key-anywhere",
        "A record with a null key goes to the partition of its unit.",
        _CONTRACT.format("19. Events of other formats"),
        "notification_service/connectors/kafka/core/size_limits.py",
        "lane = each.lane if each.key is None else None",
        "lane = each.key",
        (
            "tests/notification_service/connectors/kafka/test_passed_through.py"
            "::test_without_a_key_a_record_goes_to_the_partition_of_its_unit_and_with_one_to_that_of_the_key",
        ),
    ),
    PlantedFault(
        "timestamp-of-sending",
        "What passes through keeps its timestamp while it waits.",
        _CONTRACT.format("19. Events of other formats"),
        "resequencer/unit_codec.py",
        "_encode(entry if record.written_at is None else (*entry, record.written_at))",
        "_encode(entry)",
        ("tests/process/test_byte_for_byte.py::test_the_digest_of_what_leaves_is_that_of_what_came",),
    ),
    PlantedFault(
        "position-of-an-upstream-resequencer",
        "The dead letter of a record that its topic refuses names where it came from, whatever its own headers are.",
        _CONTRACT.format("19. Events of other formats"),
        "guardian/headers.py",
        '    if prefix:\n        return named.get(f"{prefix}{SOURCE_POSITION}", b"")\n',
        "",
        (
            "tests/notification_service/connectors/kafka/test_passed_through.py"
            "::test_one_with_too_large_headers_is_a_dead_letter_that_names_where_it_came_from",
        ),
    ),
)

if __name__ == "__main__":
    from promises.run import main

    sys.exit(main(PLANTED, sys.argv[1:]))
