"""The fake broker and the fake clients, under the same tests that the transport passes on a real broker."""

from collections.abc import Iterator

import pytest
from simulation.fakes.patching import fake_kafka
from simulation.fakes.stage import FakeStage, SafeLine

from tests.notification_service.connectors.kafka import test_ownership as ownership
from tests.notification_service.connectors.kafka import test_publish as publish
from tests.notification_service.connectors.kafka import test_transport as transport


@pytest.fixture
def stage() -> Iterator[FakeStage]:
    stage, line = FakeStage(), SafeLine()
    with fake_kafka(stage.broker, lambda: line):
        yield stage


_SHARED = (
    transport.test_records_come_as_they_were_sent_and_in_order,
    transport.test_what_is_not_sought_is_not_read,
    transport.test_a_poll_for_nothing_brings_nothing_and_loses_nothing,
    transport.test_a_poll_for_nothing_tells_the_ends_of_the_logs,
    transport.test_a_value_that_is_too_long_is_cut_and_one_that_is_missing_is_null,
    transport.test_reading_steps_over_the_markers_of_transactions_up_to_the_end_that_it_returns,
    transport.test_an_open_transaction_hides_what_is_behind_it,
    transport.test_what_is_published_is_read_once_with_its_key_headers_and_position,
    transport.test_positions_of_several_partitions_leave_together,
    transport.test_notifications_of_a_unit_leave_in_order,
    transport.test_a_worker_that_comes_back_goes_on_at_the_position,
    transport.test_a_partition_without_history_has_no_position_and_begins_at_the_earliest,
    transport.test_a_position_that_another_program_wrote_is_told_without_its_text,
    transport.test_metadata_comes_back_as_it_was_given,
    ownership.test_workers_share_the_partitions_and_take_over_from_one_that_leaves,
    ownership.test_nothing_is_committed_when_a_partition_goes,
    ownership.test_a_partition_that_no_other_worker_had_is_kept_through_a_rebalance,
    ownership.test_a_partition_that_another_worker_had_in_between_is_missing_once_and_taken_over_again,
    ownership.test_a_position_that_another_worker_moved_is_noticed_with_the_next_generation,
    ownership.test_a_worker_that_was_thrown_out_publishes_nothing,
    ownership.test_what_the_group_refused_does_not_leave_with_the_next_publication,
    ownership.test_a_partition_that_is_not_ours_is_not_published_for,
    ownership.test_a_position_that_is_undecided_is_waited_for_a_while_and_told_once_it_is_decided,
    ownership.test_while_a_position_is_undecided_its_partition_waits_and_the_others_are_read,
    ownership.test_a_poll_that_fails_after_records_have_come_loses_none_of_them,
    ownership.test_what_a_killed_predecessor_left_open_is_ended_at_the_start,
    publish.test_a_commit_whose_answer_was_lost_is_found_to_have_happened,
    publish.test_a_commit_that_never_arrived_is_made_again_when_it_is_asked_for_again,
    publish.test_a_commit_that_arrived_though_it_could_not_be_found_out_is_not_made_again,
    publish.test_of_a_commit_that_never_arrived_it_is_reported_that_nothing_is_published,
    publish.test_an_outcome_that_another_worker_has_moved_beyond_costs_the_partition,
    publish.test_the_same_position_again_is_not_taken_for_done_when_its_outcome_is_not_known,
    publish.test_a_position_can_be_read_when_the_last_outcome_is_not_known,
)
globals().update({each.__name__: each for each in _SHARED})
