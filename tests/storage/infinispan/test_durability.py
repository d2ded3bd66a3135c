"""Storage `infinispan`: what a cache's configuration says about durability, and what the server's answers mean."""

import ssl

import httpx
import pytest

from resequencer.storage_port import StorageRefused, StorageUnavailable
from storage.infinispan.durability import CLUSTERED_DEFINITION, LOCAL_DEFINITION, durability_of
from storage.infinispan.rest_client import refuse, translated


def durability(kind, **settings):
    return durability_of({"configuration": {"state": {kind: settings}}})


def shortcomings(kind, **settings):
    return " | ".join(durability(kind, **settings).shortcomings())


ON_DISK = {"file-store": {"data": {"sync-writes": True}}}


@pytest.mark.parametrize("definition", [CLUSTERED_DEFINITION, LOCAL_DEFINITION])
def test_what_the_service_makes_itself_loses_nothing(definition):
    made = durability_of({"configuration": {"state": definition}})
    assert (made.objections, list(made.shortcomings())) == ((), [])


@pytest.mark.parametrize(
    ("kind", "settings", "text"),
    [
        (
            "distributed-cache",
            {"mode": "SYNC", "persistence": ON_DISK},
            "synchronous, 2 owners, on disk, synced with every write",
        ),
        ("distributed-cache", {"mode": "ASYNC", "owners": "3"}, "asynchronous, 3 owners, in memory only"),
        ("replicated-cache", {"mode": "SYNC", "persistence": {"file-store": {}}}, "synchronous, on disk"),
        ("local-cache", {"persistence": {"rocksdb-store": {"path": "x"}}}, "on one server, on disk"),
    ],
)
def test_a_cache_is_told_by_its_mode_its_owners_and_its_place(kind, settings, text):
    assert str(durability(kind, **settings)) == text


@pytest.mark.parametrize(
    ("kind", "settings", "text"),
    [
        ("distributed-cache", {"mode": "ASYNC", "persistence": ON_DISK}, "it is asynchronous"),
        ("replicated-cache", {"mode": "SYNC"}, "when the whole cluster restarts, all state is lost"),
        ("distributed-cache", {"mode": "SYNC", "owners": "1"}, "it has one owner per entry"),
        ("local-cache", {}, "when the server restarts, all state is lost"),
        ("local-cache", {"persistence": {"file-store": {}}}, "it does not sync its writes to disk"),
        ("local-cache", {"persistence": {"file-store": {"write-behind": {}, "data": {"sync-writes": True}}}}, "it does not sync"),
        ("local-cache", {"persistence": {"passivation": True, **ON_DISK}}, "it is not on disk"),
        ("local-cache", {"persistence": {"file-store": {"purge": True}}}, "it is not on disk"),
        ("local-cache", {"persistence": {"file-store": {"read-only": "true"}}}, "it is not on disk"),
    ],
)
def test_what_may_be_lost_is_said(kind, settings, text):
    assert text in shortcomings(kind, **settings)
    assert not durability(kind, **settings).objections


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        ("invalidation-cache", {"mode": "SYNC"}),
        ("local-cache", {"expiration": {"lifespan": "1h"}}),
        ("local-cache", {"expiration": {"max-idle": 1}}),
        ("local-cache", {"memory": {"max-size": "1GB", "when-full": "REMOVE"}}),
        ("local-cache", {"memory": {"max-size": "1GB", "when-full": "REMOVE"}, "persistence": {"passivation": True, **ON_DISK}}),
        ("local-cache", {"encoding": {"value": {"media-type": "application/json"}}}),
    ],
)
def test_a_cache_in_which_something_would_vanish_or_change_is_objected_to(kind, settings):
    assert len(durability(kind, **settings).objections) == 1


@pytest.mark.parametrize(
    "settings",
    [
        {"expiration": {"lifespan": "-1", "max-idle": -1, "interval": "60000"}},
        {"memory": {"max-size": "1GB", "when-full": "REMOVE"}, "persistence": ON_DISK},
        {"memory": {"max-size": "1GB", "when-full": "EXCEPTION"}},
        {"encoding": {"key": {"media-type": "text/plain"}, "value": {"media-type": "application/octet-stream; x=y"}}},
    ],
)
def test_what_keeps_everything_is_not_objected_to(settings):
    assert not durability("local-cache", **settings).objections


def test_who_may_not_see_the_configuration_is_told_what_the_overview_says():
    overview = {"type": "distributed-cache", "mode": "DIST_ASYNC", "persistent": True, "bounded": False, "value_storage": None}
    seen = durability_of(overview)
    assert str(seen) == "asynchronous, on disk"
    assert "it is unknown whether its entries expire, for the user lacks ADMIN" in " ".join(seen.shortcomings())
    assert not seen.objections
    assert durability_of(overview | {"bounded": True, "persistent": False}).objections
    assert durability_of(overview | {"value_storage": "application/x-protostream"}).objections


# Answers.


def answer(status, text=""):
    return httpx.Response(status, text=text, request=httpx.Request("PUT", "http://server/rest/v2/caches/state/key"))


@pytest.mark.parametrize(
    ("status", "text"),
    [
        (400, "it answers 400 broken to PUT /rest/v2/caches/state/key"),
        (401, "username and password"),
        (403, "give it the role application"),
        (404, "set storage.infinispan.url"),
        (413, "max-content-length"),
        (302, "it answers 302"),
        (999, "it answers 999"),
    ],
)
def test_what_a_person_must_mend_is_refused_with_the_remedy(status, text):
    with pytest.raises(StorageRefused, match=text):
        refuse("http://server", answer(status, "broken\nby us"))


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503, 504])
def test_what_goes_away_by_itself_is_unavailable(status):
    with pytest.raises(StorageUnavailable, match=f"http://server: PUT /rest/v2/caches/state/key: {status} out of memory"):
        refuse("http://server", answer(status, "out of memory"))


@pytest.mark.parametrize("error", [httpx.ReadTimeout("timed out"), httpx.ConnectError("refused"), httpx.RemoteProtocolError("")])
def test_silence_is_unavailable(error):
    with pytest.raises(StorageUnavailable, match="http://server: GET /key: "), translated("http://server", "GET /key"):
        raise error


def test_a_certificate_without_a_known_authority_is_refused():
    error = httpx.ConnectError("no")
    error.__cause__ = ssl.SSLCertVerificationError("self-signed")
    with pytest.raises(StorageRefused, match="ca-file"), translated("http://server", "GET /key"):
        raise error
