"""Since when a worker's servers answer, or do not."""

from notification_service.status.report import ServerStatus
from notification_service.worker.worker_report import ServerStates
from resequencer.clock import instant_text

NOW = 1_774_740_835_941


def test_before_a_worker_has_begun_only_what_does_not_answer_is_known():
    states = ServerStates()
    assert states.note({}, NOW, is_known=False) == {}
    assert states.note({"storage": "refused"}, NOW, is_known=False) == {
        "storage": ServerStatus(False, instant_text(NOW), "refused")
    }


def test_a_state_keeps_its_first_instant_and_the_latest_reason():
    states = ServerStates()
    states.note({"output": "slow"}, NOW, is_known=True)
    found = states.note({"output": "gone"}, NOW + 500, is_known=True)
    assert found["output"] == ServerStatus(False, instant_text(NOW), "gone")
    assert found["source"] == ServerStatus(True, instant_text(NOW))


def test_a_server_that_answers_again_does_so_since_then():
    states = ServerStates()
    states.note({"output": "gone"}, NOW, is_known=True)
    assert states.note({}, NOW + 500, is_known=True)["output"] == ServerStatus(True, instant_text(NOW + 500))
