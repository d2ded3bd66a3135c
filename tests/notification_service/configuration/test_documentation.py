"""conf/reference.conf explains each key; docs/configuration.md lists its default and the values that it takes."""

from pathlib import Path

from harness.documented_keys import DOCUMENT, find_gaps

from notification_service.configuration.hocon import parse_text, resolve
from notification_service.configuration.resolution import read_keys_of_reference, read_reference
from notification_service.configuration.schema import SCHEMA
from resequencer.keys.secret import is_secret_name


def test_every_key_is_in_the_reference_and_documented_as_the_reference_and_the_schema_say():
    gaps = find_gaps(SCHEMA, read_reference(), Path(DOCUMENT).read_text(encoding="utf-8"))
    assert not gaps, "\n".join(gaps)


def test_the_reference_stands_by_itself():
    document = parse_text(read_reference(), "reference", where="reference.conf")
    assert resolve([document]).variables == frozenset()
    assert resolve([document]).values == resolve([document]).values


def test_the_reference_without_its_comments_says_the_same():
    whole, keys = (parse_text(each, "reference", where="reference.conf") for each in (read_reference(), read_keys_of_reference()))
    assert resolve([keys]) == resolve([whole])


def test_the_only_keys_that_are_secret_by_their_names_are_the_passwords():
    storage = "payment-status-notification.storage"
    secret = [path for path in SCHEMA.keys if is_secret_name(path)]
    peers = "payment-status-notification.http.peers-token"
    login = "payment-status-notification.delivery.receiver-defaults.auth"
    receivers = [f"{login}.password", f"{login}.token"]
    sources = ["ipf.processing-data.ingress.jms.password", "ipf.bridge.mqtt.password", "ipf.bridge.xms.password"]
    brokers = [*sources, *(f"payment-status-notification.{kind}.password" for kind in ("jms", "mqtt", "xms"))]
    assert secret == [*brokers, f"{storage}.redis.password", f"{storage}.infinispan.password", *receivers, peers]
