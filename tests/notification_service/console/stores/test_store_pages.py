"""A user's own store as people and programs look at it: its values by key, one value with its members, and who may see them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from harness.api_stage import API, ApiStage
from harness.console_stage import client_of, make_sources
from harness.counted_groups import JobsStage
from starlette.testclient import TestClient

from guardian.ports import TransportUnavailable
from notification_service.aggregation.completions import Completed
from notification_service.aggregation.view import ValueChange
from notification_service.console.stores.watch import OwnStore, describe_value
from notification_service.status.aggregation import AggregationStatus, StoreStatus

VALUE = {"jobs": 1, "done": 1, "contacts": 100}
AT = 1_774_741_000_000


def viewer(stage: ApiStage, roles: str = "viewer") -> TestClient:
    return TestClient(stage.application(), base_url="http://127.0.0.1:8080", headers={"x-roles": roles})


def looks(directory: Path) -> list[dict[str, Any]]:
    """What the audit log has of looks, without who and when."""
    lines = [json.loads(line) for each in directory.glob("console-audit-*") for line in each.read_text().splitlines()]
    return [{name: line[name] for name in line.keys() - {"at", "by", "from", "action"}} for line in lines]


def test_the_stores_are_listed_with_what_their_workers_report(stage: ApiStage) -> None:
    stage.groups.reported = AggregationStatus(stores=(StoreStatus("jobs", ("jobs-commands-0",), 3, 5, 1, 2, problem="it rests"),))
    found = stage.get("/stores")["stores"]
    assert [each["name"] for each in found] == ["payments", "jobs"]
    assert found[0]["reported"] is None
    assert found[1]["reported"]["behind"] == 3
    page = stage.client.get("/stores").text
    for text in ('href="/groups"', 'href="/stores/jobs"', "it rests", "no aggregation worker of this machine has reported"):
        assert text in page
    assert 'href="/stores"' in stage.client.get("/").text


def test_without_a_store_the_page_names_the_keys_and_no_page_leads_there(tmp_path: Path) -> None:
    client = client_of(make_sources(tmp_path))
    assert "aggregation.stores" in client.get("/stores").text
    assert 'href="/stores"' not in client.get("/").text
    assert client.get("/stores/jobs").status_code == 404


def test_values_are_found_by_a_part_of_their_key_page_by_page(stage: ApiStage) -> None:
    for number in range(7):
        stage.jobs.finish(f"Import/{number}&", 0)
    stage.jobs.count()
    first = stage.get("/stores/jobs/values", text="IMPORT", limit="5")
    second = stage.get("/stores/jobs/values", text="IMPORT", limit="5", after=first["after"])
    assert [each["name"] for each in first["values"] + second["values"]] == [f"Import/{number}&" for number in range(7)]
    assert (second["after"], second["is_whole"]) == (None, True)
    assert stage.get("/stores/jobs/values")["values"][-1] == {
        "name": "request-7",
        "value": VALUE,
        "size_bytes": len(json.dumps(VALUE, separators=(",", ":"))),
        "is_hidden": False,
    }
    page = stage.client.get("/stores/jobs?text=7").text
    assert 'href="/stores/jobs/value?key=request-7"' in page
    assert "Import" not in page
    assert stage.get("/stores/jobs/value", key="Import/3&")["value"]["value"] == VALUE


def test_a_page_ends_where_its_values_become_long(stage: ApiStage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("notification_service.console.stores.watch._MAX_BYTES", 50)
    for job in range(4):
        stage.jobs.finish("a", job, 9)
        stage.jobs.finish(f"b{job}", 0)
    stage.jobs.count()
    found, after = list[str](), ""
    for _ in range(3):
        page = stage.get("/stores/jobs/values", after=after)
        found += [each["name"] for each in page["values"]]
        after = page["after"]
    assert (found, after) == (["a", "b0", "b1", "b2", "b3", "request-7"], None)


def test_a_search_that_takes_too_long_continues_where_it_was_given_up(stage: ApiStage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("notification_service.console.stores.watch._SEARCH_SECONDS", -1.0)
    stage.jobs.finish("a", 0)
    stage.jobs.count()
    first = stage.get("/stores/jobs/values", text="request")
    assert (first["values"], first["after"], first["is_whole"]) == ([], "a", False)
    assert "The search took too long" in stage.client.get("/stores/jobs?text=request").text
    assert [each["name"] for each in stage.get("/stores/jobs/values", text="request", after="a")["values"]] == ["request-7"]


def test_a_value_has_its_members_and_files_keep_no_changes(stage: ApiStage) -> None:
    for job in range(60):
        stage.jobs.finish("a", job, 99)
    stage.jobs.count()
    first = stage.get("/stores/jobs/value", key="a")
    second = stage.get("/stores/jobs/value", key="a", after=first["after"])
    assert [len(each["members"]) for each in (first, second)] == [50, 10]
    assert first["members"][0] == {"name": "job-0", "value": 100, "size_bytes": 3, "is_hidden": False}
    assert (first["changes"], first["changes_problem"]) == (None, "files keep a value as it is now, and no changes")
    page = stage.client.get("/stores/jobs/value?key=a").text
    assert "&#34;done&#34;: 60" in page
    assert "Next page" in page
    assert "Not known: files keep" in page


def test_what_is_not_there_is_not_found(stage: ApiStage) -> None:
    for path in ("/stores/jobs/value?key=other", "/stores/other/values", "/stores/payments/values", "/stores/other/events"):
        assert stage.client.get(f"{API}{path}").status_code == 404, path
    assert stage.client.get("/stores/jobs/value?key=other").status_code == 404
    assert stage.client.get("/stores/payments").status_code == 404
    assert stage.client.get(f"{API}/stores/jobs/value").status_code == 400


def test_values_need_the_role_payments_and_each_look_at_them_is_noted(stage: ApiStage) -> None:
    stage.jobs.finish("request-7", 1)
    given = viewer(stage)
    for path in ("/stores/jobs", "/stores/jobs/value?key=request-7", f"{API}/stores/jobs/values"):
        text = given.get(path).text
        assert "request-7" in text
        assert "contacts" not in text, path
    hidden = given.get(f"{API}/stores/jobs/value?key=request-7").json()
    assert [each["value"] for each in (hidden["value"], *hidden["members"])] == [None, None]
    assert looks(stage.directory) == []
    given = viewer(stage, "viewer payments")
    assert "contacts" in given.get("/stores/jobs?text=request").text
    assert given.get(f"{API}/stores/jobs/value?key=request-7").json()["value"]["value"] == VALUE
    assert looks(stage.directory) == [{"store": "jobs", "text": "request", "after": ""}, {"store": "jobs", "key": "request-7"}]


class Changed(JobsStage):
    """As on topics, which keep changes."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.changes: Sequence[ValueChange] = ()

    def find_changes(self, key: str, limit: int) -> Sequence[ValueChange]:  # type: ignore[override]
        assert (key, limit) == ("a", 20)
        return self.changes


def changed(tmp_path: Path) -> tuple[Changed, TestClient]:
    jobs = Changed(tmp_path / "jobs")
    jobs.finish("a", 0)
    jobs.count()
    return jobs, client_of(make_sources(tmp_path)._replace(stores={"jobs": jobs}))


def test_changes_that_the_brokers_still_have_are_shown_the_latest_first(tmp_path: Path) -> None:
    jobs, client = changed(tmp_path)
    jobs.changes = (ValueChange(AT, "", b'{"done": 2}'), ValueChange(AT, "job-0", None), ValueChange(AT, "", b"\xff"))
    found = client.get(f"{API}/stores/jobs/value?key=a").json()["changes"]
    assert [(each["member"], each["value"], each["is_deleted"]) for each in found] == [
        (None, {"done": 2}, False),
        ("job-0", None, True),
        (None, "\N{REPLACEMENT CHARACTER}", False),
    ]
    page = client.get("/stores/jobs/value?key=a").text
    assert "member job-0, deleted" in page
    jobs.close()


def test_brokers_that_are_away_cost_the_changes_alone(tmp_path: Path) -> None:
    jobs, _ = changed(tmp_path)
    store = OwnStore(jobs, jobs.clock)
    jobs.is_away = True
    store.watch.refresh()
    with pytest.raises(TransportUnavailable, match="the brokers do not answer"):
        store.find_changes("a")
    assert [key for key, _ in store.find_values("", "", 50).values] == ["a"]
    jobs.close()


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (b'{"a": 1.10,\n "b": 123456789012345678901234567890}', b'{"a":1.10,"b":123456789012345678901234567890}'),
        (b"a\nb", b'"a\\nb"'),
        (b"", b'""'),
        (b'"\xff"', '"\\"\N{REPLACEMENT CHARACTER}\\""'.encode()),
        (b"[" * 100_000, None),
    ],
)
def test_what_a_program_wrote_is_sent_as_json_in_one_line(value: bytes, expected: bytes | None) -> None:
    found = describe_value(Completed(0, 0, 1, (), b"k", value), True).value
    assert expected is None or bytes(found) == expected
    assert b"\n" not in bytes(found)
    json.loads(bytes(found))
