"""What the page of an audit says about the service that it audited."""

from __future__ import annotations

from pathlib import Path

import pytest
from harness.processes.operated_service import INGRESS, NOTIFICATION

from notification_service.commands.audit import audit_subject
from notification_service.configuration.configuration import load
from notification_service.jobs.audit.summary import AuditSubject

BROKERS = 'bootstrap.servers = "b:1"'
KAFKA = f"""
    {INGRESS} {{ transport = kafka, kafka.consumer {{ topic = IN, kafka-clients {{ {BROKERS}, group.id = G }} }} }}
    {NOTIFICATION} {{
      run-directory = here, transport = kafka, kafka.producer {{ topic = OUT, kafka-clients {{ {BROKERS} }} }}
      dead-letters.topic = DEAD, archive.directory = "s3a://key:secret@bucket/records"
      resequencer {{ storage-type = embedded, strategy = STRICT_SEQUENCE, stash-timeout = learned }}
    }}
"""


@pytest.mark.parametrize(("is_archive", "archive"), [(False, None), (True, "s3a://key:***@bucket/records")])
def test_of_kafka_topics_group_and_archive_are_named_and_no_password(tmp_path: Path, is_archive, archive):
    file = tmp_path / "service.conf"
    file.write_text(KAFKA)
    subject = audit_subject(load(file), 5, 7, is_archive=is_archive)
    assert subject == AuditSubject(
        "here", "topic IN", "topic OUT", "topic DEAD", archive, "G", "STRICT_SEQUENCE", 1_000, 600_000, 5, 7
    )


def test_of_files_the_directory_and_the_outputs_are_named(tmp_path: Path):
    file = tmp_path / "service.conf"
    files = f"{INGRESS}.transport = file\n{NOTIFICATION} {{ transport = file, run-directory = here"
    file.write_text(f"{files}, resequencer.stash-timeout = 5s }}")
    subject = audit_subject(load(file), 5, 7, is_archive=False)
    assert (subject.input, subject.notifications) == ("files in here/in", "here/out/notifications.jsonl")
    assert (subject.dead_letters, subject.group) == ("here/out/dead-letters.jsonl", None)
    assert (subject.shortest_deadline_ms, subject.longest_deadline_ms) == (5_000, 5_000)
