"""Kafka does not answer for a while: `simulate` and `verify` wait, as the service does, and report it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from harness.processes.operated_daemon import Daemon
from harness.processes.operated_service import INGRESS, KAFKA_CLIENTS, NOTIFICATION
from harness.waiting import DEADLINE_SECONDS, linger, wait_until

from servers.kafka import KafkaServer

pytestmark = pytest.mark.slow

TOPICS = ("IPF_PROCESSING_DATA", "PAYMENT_STATUS_NOTIFICATION", "IPF_PROCESSING_DATA_DEAD_LETTERS")
PATIENCE_SECONDS = 20
PAUSE_SECONDS = PATIENCE_SECONDS + 2


@pytest.mark.nightly("processes")
def test_simulate_and_verify_wait_for_kafka_and_say_so(
    new_daemon: Callable[..., Daemon], own_server: Callable[..., KafkaServer], tmp_path: Path
) -> None:
    broker = own_server(KafkaServer).start()
    broker.create_topics(*TOPICS, partitions=2)
    daemon = new_daemon(
        f"{INGRESS}.transport=kafka",
        f"{NOTIFICATION}.transport=kafka",
        f'{KAFKA_CLIENTS}.bootstrap.servers = "{broker.bootstrap}"',
        # After the pause the worker may read on before the simulator sends on. Then what it has not sent yet would be missing.
        f"{NOTIFICATION}.resequencer.stash-timeout=5m",
    )
    daemon.start()
    service = daemon.service
    simulating = service.begin_verb("simulate", "--units", "600", "--rate", "100/s", "--late", "0", "--losses", "0")
    wait_until(lambda: (service.run_directory / "expected.jsonl").exists(), "the expectations")
    following = service.begin_verb("verify", "--follow", "--give-up-after", f"{PATIENCE_SECONDS}s")
    wait_until(lambda: "units complete" in _said(tmp_path, "verify"), "the first look")
    broker.pause()
    wait_until(lambda: "the output is unavailable, retrying until it answers" in _said(tmp_path, "verify"), "verify says so")
    wait_until(lambda: "the input is unavailable, retrying until it answers" in _said(tmp_path, "simulate"), "simulate says so")
    linger(PAUSE_SECONDS)  # Longer than verify waits without progress.
    broker.resume()
    assert simulating.wait(DEADLINE_SECONDS) == 0, _said(tmp_path, "simulate")
    assert following.wait(DEADLINE_SECONDS) == 0, _said(tmp_path, "verify")
    assert "the output answers again" in _said(tmp_path, "verify")
    assert "every promise was held" in _said(tmp_path, "verify")


def _said(directory: Path, verb: str) -> str:
    return (directory / f"{verb}.log").read_text(encoding="utf-8")
