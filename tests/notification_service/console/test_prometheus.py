"""The metrics of a service: names, types and values, and that no count of a report is without one."""

import os
import re
import subprocess
from pathlib import Path

import httpx
import msgspec
import pytest
from harness.counted_groups import GroupStage
from harness.promtool import known_families
from prometheus_client.parser import text_string_to_metric_families
from starlette.testclient import TestClient

from guardian.metrics import COUNTED, HistogramReport, Histograms
from notification_service.console.groups import Groups
from notification_service.console.prometheus import COUNTERS, METRICS, ServiceCollector, make_metrics_application
from notification_service.console.sources import ArchiveDistance
from notification_service.delivery.core.backlog import make_backlog
from notification_service.delivery.core.jobs import Pause
from notification_service.status.aggregation import (
    AggregationStatus,
    BridgeState,
    BridgeStatus,
    StoreCounts,
    StoreStatus,
)
from notification_service.status.delivery import (
    DeliveredPartition,
    DeliveryStatus,
    DirectStatus,
    GateStatus,
    ReceiverCalls,
    ScheduleStatus,
)
from notification_service.status.file import SideStatus
from notification_service.status.report import (
    CallsStatus,
    Identity,
    PartitionStatus,
    ServerStatus,
    State,
    StatusReport,
    Units,
    UnitWait,
    UntakenPartition,
    report,
)
from notification_service.status.service_report import ServiceReport, service_report
from resequencer.clock import instant_text
from resequencer.record import Partition
from servers.prometheus import find_promtool

ROOT = Path(__file__).parents[3]
NOW = 1_774_740_835_941
BOUNDED = HistogramReport((0.5, 1.0), (1, 3, 4), 7.5)
NAMES_OF_COUNTS = re.compile(r'counts\["([a-z_]+)"\]')


def full_report(slot: int = 0, count: int = 1) -> StatusReport:
    """A report in which every field has a value."""
    plain = report(Identity(17, "local.conf", NOW, 3, "died", slot, count, 18, {"hung": 1, "signal": 2}), State.READY, None, NOW)
    return msgspec.structs.replace(
        plain,
        units=Units(5, 4, 3, 2, 1, 2),
        oldest_waits=(UnitWait("uow-1", "T-0", "sequence:1", "deadline", instant_text(NOW - 5_000), instant_text(NOW), 1),),
        partitions=(PartitionStatus("T-0", 10, 8, 2, 8, slot, 7, 6, 1_500, instant_text(NOW - 1_000), "uow-1"),),
        untaken=(UntakenPartition("T-1", "storage", "no answer", instant_text(NOW), slot),),
        counts={name: at for at, name in enumerate(COUNTERS, 1)},
        notifications={"ACCP": 6},
        dead_letters={"undecodable": 2},
        longest_wait_ms=2_500,
        unavailable={"sanctions": 3},
        servers={"storage": ServerStatus(False, instant_text(NOW), "no answer"), "output": ServerStatus(True, instant_text(NOW))},
        histograms=dict.fromkeys((*Histograms().report(), "call"), BOUNDED),
        lookups_version="20260328T233000Z",
        lookups_created_at=instant_text(NOW),
        calls=CallsStatus(12, 3, 1, "uow-1", 2_150, ("uow-1",)),
    )


def service_of(*reports: StatusReport, is_running: bool = True) -> ServiceReport:
    return service_report(reports, NOW, is_running=is_running)


def text_of(collector: ServiceCollector) -> str:
    return TestClient(make_metrics_application(collector)).get("/metrics").text


def scraped(found: ServiceReport | None) -> httpx.Response:
    return TestClient(make_metrics_application(ServiceCollector(lambda: found))).get("/metrics")


def samples_of(found: ServiceReport | None) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    families = text_string_to_metric_families(scraped(found).text)
    return {(each.name, tuple(sorted(each.labels.items()))): each.value for family in families for each in family.samples}


def find_values(found: ServiceReport | None, name: str) -> dict[tuple[tuple[str, str], ...], float]:
    return {labels: value for (of, labels), value in samples_of(found).items() if of == f"resequencer_{name}"}


def test_every_count_of_a_report_is_a_counter():
    written = {name for path in (ROOT / "guardian").glob("*.py") for name in NAMES_OF_COUNTS.findall(path.read_text())}
    operators = re.findall(r"^\| `([a-z_]+)` \| ", (ROOT / "docs" / "operations.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert {"publications_refused", "released_units"} <= written
    assert (COUNTED | dict.fromkeys(written)).keys() - COUNTERS.keys() == set()
    assert COUNTERS.keys() <= set(operators)


@pytest.mark.slow
def test_every_count_is_shown_under_the_workers_slot():
    service = service_of(full_report(0, 2), full_report(1, 2))
    for at, (name, _) in enumerate(COUNTERS.values(), 1):
        assert find_values(service, f"{name}_total") == {(("slot", "0"),): at, (("slot", "1"),): at}


def test_every_histogram_of_a_report_is_shown_with_its_buckets():
    service = service_of(full_report())
    for step in ("poll", "decide", "commit", "publish"):
        labels = ("slot", "0"), ("step", step)
        assert find_values(service, "cycle_step_seconds_count")[labels] == 4
    for name in ("stash_wait", "record_to_publication", "storage_commit", "publication", "call"):
        found = find_values(service, f"{name}_seconds_bucket")
        assert [(dict(labels)["le"], value) for labels, value in found.items()] == [("0.5", 1), ("1.0", 3), ("+Inf", 4)]
        assert find_values(service, f"{name}_seconds_sum") == {(("slot", "0"),): 7.5}
    assert sum(each.kind == "histogram" for each in METRICS) == len(Histograms().report()) - 2


@pytest.mark.parametrize(
    ("name", "labels", "value"),
    [
        ("worker_exits_total", {"cause": "signal"}, 2),
        ("worker_exits_total", {"cause": "ordered"}, 0),
        ("worker_restarts_total", {"reason": "signal"}, 2),
        ("worker_status", {"state": "ready"}, 1),
        ("worker_status", {"state": "storage-unavailable"}, 0),
        ("worker_state", {"state": "storage unavailable"}, 0),
        ("notifications_committed_total", {"status": "ACCP"}, 6),
        ("notifications_total", {"outcome": "ACCP"}, 6),
        ("dead_letters_total", {"reason": "undecodable"}, 2),
        ("units_waiting", {}, 4),
        ("units_held", {}, 2),
        ("calls_under_way", {}, 12),
        ("calls_waiting", {}, 3),
        ("calls_lingering", {}, 1),
        ("longest_call_seconds", {}, 2.15),
        ("stashed_bytes", {}, 2),
        ("oldest_wait_timestamp_seconds", {}, (NOW - 5_000) / 1_000),
        ("longest_wait_seconds", {}, 2.5),
        ("partition_lag_offsets", {"partition": "T-0"}, 7),
        ("partition_stable_lag_offsets", {"partition": "T-0"}, 6),
        ("partition_lag", {"partition": "T-0"}, 7),
        ("partition_lag_seconds", {"partition": "T-0"}, 1.5),
        ("partition_held_timestamp_seconds", {"partition": "T-0"}, (NOW - 1_000) / 1_000),
        ("partition_untaken", {"partition": "T-1", "server": "storage"}, 1),
        ("server_up", {"server": "storage"}, 0),
        ("server_up", {"server": "output"}, 1),
        ("dependency_units_waiting", {"dependency": "sanctions"}, 3),
        ("lookups_release_info", {"release": "20260328T233000Z"}, 1),
    ],
)
def test_a_value_of_a_report_is_in_base_units(name, labels, value):
    assert find_values(service_of(full_report()), name)[tuple(sorted({"slot": "0", **labels}.items()))] == value


def test_a_running_service_is_up_and_ready_if_all_workers_are():
    waits = msgspec.structs.replace(full_report(1, 2), state=State.STORAGE_UNAVAILABLE)
    assert find_values(service_of(full_report()), "ready") == {(): 1}
    found = service_of(full_report(0, 2), waits)
    assert (find_values(found, "up"), find_values(found, "ready"), find_values(found, "workers")) == ({(): 1}, {(): 0}, {(): 2})


@pytest.mark.parametrize("found", [None, service_of(full_report(), is_running=False)])
def test_a_scrape_while_no_worker_runs_says_so_and_nothing_else(found):
    assert scraped(found).status_code == 200
    samples = {name: value for (name, _), value in samples_of(found).items() if not name.startswith("process_")}
    assert samples == {"resequencer_build_info": 1, "resequencer_up": 0, "resequencer_ready": 0, "resequencer_workers": 0}


def test_what_is_not_known_is_absent():
    plain = report(Identity(17, "local.conf", NOW), State.STARTING, None, NOW)
    unknown = msgspec.structs.replace(plain, partitions=(PartitionStatus("T-0", 10, 8, 0, None),))
    names = {name for name, _ in samples_of(service_of(unknown))}
    assert "resequencer_partition_read_offset" in names
    assert not names & {
        f"resequencer_{name}"
        for name in (
            *("partition_lag_offsets", "partition_lag", "partition_held_offset", "oldest_wait_timestamp_seconds", "lookups_info"),
            *("calls_under_way", "calls_lingering", "longest_call_seconds"),
        )
    }


def test_no_label_holds_an_id():
    shown = samples_of(service_of(full_report()))
    assert not any("uow-1" in value for _, labels in shown for _, value in labels)


def test_the_operations_page_has_each_metric_with_its_type_and_labels():
    page = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
    lines = re.findall(r"^((?:resequencer|process)_[a-z_]+) ([a-z]+)(?: ([a-z_,]+))?$", page, re.MULTILINE)
    assert lines == [(each.name, each.kind, ",".join(each.labels)) for each in known_families() if each.instead is None]


def test_the_contract_has_what_replaces_each_deprecated_metric_and_one_meaning_for_each_label():
    page = (ROOT / "docs" / "contract.md").read_text(encoding="utf-8").partition("\n## 20. ")[2].partition("\n## ")[0]
    rows = re.findall(
        r"^\| `(resequencer_[a-z_]+)(?:\{([a-z_,]+)\})?` \| `(resequencer_[a-z_]+)(?:\{([a-z_,]+)\})?` \|", page, re.MULTILINE
    )
    known = {each.name: each for each in known_families()}
    of_own = {name: ",".join(label for label in each.labels if label != "slot") for name, each in known.items()}
    deprecated = [each for each in known.values() if each.instead is not None]
    assert rows == [(each.name, of_own[each.name], each.instead, of_own[each.instead]) for each in deprecated]
    labels = re.findall(r"^\| `([a-z_]+)` \| [A-Za-z]", page, re.MULTILINE)
    assert sorted(labels) == sorted({label for each in known.values() if each.instead is None for label in each.labels})


UNITS = ("_seconds", "_bytes", "_offset", "_offsets", "_info", "_total")
OTHER_UNITS = re.compile(r"_(ms|milliseconds|minutes|minute|hours|days|kb|mb|percent|millis|kib|mib)(_|$)")
MEASURED = re.compile(r"_(lag|age|duration|time|timestamp|bytes|size|latency)(_|$)")


def test_names_and_labels_keep_the_conventions_of_prometheus():
    """https://prometheus.io/docs/practices/naming: base units in the name, `_total` on counters alone, no type, no label."""
    for each in known_families():
        if each.instead is not None:
            continue
        assert re.fullmatch(r"(resequencer|process)_[a-z]+(_[a-z]+)*", each.name)
        assert each.name.endswith("_total") == (each.kind == "counter"), each
        assert not OTHER_UNITS.search(each.name), each
        assert not MEASURED.search(each.name) or each.name.endswith(UNITS), each
        assert each.kind != "histogram" or each.name.endswith("_seconds"), each
        assert not each.name.endswith(("_count", "_sum", "_bucket", "_gauge", "_counter", "_histogram")), each
        assert not any(f"_by_{label}" in each.name for label in each.labels), each


def test_what_each_process_that_runs_uses_is_shown_with_its_name():
    ended = subprocess.Popen(["true"])
    ended.wait()
    runs = report(Identity(os.getppid(), "local.conf", NOW, worker_process_id=os.getpid()), State.READY, None, NOW)
    delivery = DeliveryStatus((SideStatus(0, os.getpid(), None), SideStatus(1, ended.pid, None), SideStatus(2, None, "why")))
    collector = ServiceCollector(lambda: service_of(runs), find_delivery=lambda: delivery)
    found = [each for each in text_of(collector).splitlines() if each.startswith("process_resident_memory_bytes{")]
    assert {each.partition(" ")[0] for each in found} == {
        f'process_resident_memory_bytes{{process="{name}"}}' for name in ("console", "supervisor", "worker-0", "delivery-0")
    }
    assert all(float(each.partition(" ")[2]) > 1e6 for each in found)


def test_no_label_of_ours_has_a_space():
    deprecated = {each.name for each in known_families() if each.instead is not None}
    reports = [msgspec.structs.replace(full_report(slot, len(State)), state=state) for slot, state in enumerate(State)]
    found = samples_of(service_of(*reports))
    values = {value for (name, labels) in found if name not in deprecated for _, value in labels}
    assert "storage-unavailable" in values
    assert not [each for each in values if not re.fullmatch(r"[A-Za-z0-9_.+-]+", each)]


@pytest.mark.slow
def test_promtool_finds_nothing_to_say_against_names_and_help(tmp_path):
    text = scraped(service_of(full_report())).content
    done = subprocess.run([find_promtool(), "check", "metrics"], input=text, capture_output=True, timeout=180, check=False)
    assert (done.returncode, done.stdout + done.stderr) == (0, b"")


@pytest.mark.slow
def test_promtool_would_find_a_wrong_name():
    text = b"# TYPE resequencer_WaitMilliseconds counter\nresequencer_WaitMilliseconds 1\n"
    done = subprocess.run([find_promtool(), "check", "metrics"], input=text, capture_output=True, timeout=180, check=False)
    assert done.returncode != 0


def test_new_dead_letters_are_shown_by_reason_also_while_no_worker_runs():
    for counted, shown in (({"undecodable": 2}, ['resequencer_dead_letters_new{reason="undecodable"} 2.0']), (None, [])):
        text = text_of(ServiceCollector(lambda: None, lambda counted=counted: counted))
        assert [line for line in text.splitlines() if line.startswith("resequencer_dead_letters_new")] == shown


def test_the_distances_of_the_archive_are_shown_by_partition_also_while_no_worker_runs():
    known = {Partition("T", 0): ArchiveDistance(7, 2), Partition("T", 1): ArchiveDistance(-3, 5)}
    shown = {
        'resequencer_archive_retained_offsets{partition="T-0"} 7.0',
        'resequencer_archive_retained_offsets{partition="T-1"} -3.0',
        'resequencer_archive_lag_offsets{partition="T-0"} 2.0',
        'resequencer_archive_lag_offsets{partition="T-1"} 5.0',
    }
    for given, expected in ((known, shown), ({}, set()), (None, set())):
        text = text_of(ServiceCollector(lambda: None, lambda: None, lambda given=given: given))
        assert {line for line in text.splitlines() if line.startswith("resequencer_archive_")} == expected


def test_delivery_workers_and_gates_are_shown_where_a_receiver_is_configured():
    workers = tuple(SideStatus(slot, 1, problem) for slot, problem in enumerate((None, None, "the ledger is away")))
    more = {"failed": 4, "held_units": 2, "retries": (("limit", 6),), "stalled_jobs": 1, "missing_jobs": 2, "unread_ms": 1_500}
    more |= {"backlog": make_backlog(3, "2026-03-28T17:59:00Z", None), "pause": Pause("2026-03-28T17:59:00Z", "anna", "a test")}
    gates = (
        GateStatus("tracker", True, 3, **more),
        GateStatus("bank", False, 7, "503", "2026-03-28T18:00Z", "2026-03-28T18:01Z"),
    )
    backlog = make_backlog(1, "2026-03-28T18:00:00Z", 0.0)
    partitions = (
        DeliveredPartition("T-0", 5, 9, 3, blocked=2, oldest_at="2026-03-28T18:00:02Z", pause="full"),
        DeliveredPartition("T-1", 1, 2, 1, oldest_at="2026-03-28T18:00:01.500Z", backlog=backlog),
        DeliveredPartition("T-2", 1, 1, 0),
        DeliveredPartition("T-g-retry-1-0", 0, 0, 0, problem="no right"),
    )
    direct = (DirectStatus("mail", "503", "2026-03-28T18:00Z", "2026-03-28T18:01Z", partitions=partitions), DirectStatus("fax"))
    calls = (ReceiverCalls("tracker", {"2xx": 3, "broken": 1}, HistogramReport((0.5,), (3, 4), 7.5), 1),)
    known = DeliveryStatus(workers, gates, direct, receiver_calls=calls)
    shown = {
        'resequencer_delivery_receiver_paused{receiver="tracker"} 1.0',
        *(f'resequencer_delivery_receiver_paused{{receiver="{name}"}} 0.0' for name in ("bank", "mail", "fax")),
        'resequencer_delivery_oldest_undelivered_timestamp_seconds{receiver="tracker"} 1.77472074e+09',
        'resequencer_delivery_oldest_undelivered_timestamp_seconds{receiver="mail"} 1.7747208e+09',
        'resequencer_delivery_calls_total{answer="2xx",process="delivery-1",receiver="tracker"} 3.0',
        'resequencer_delivery_calls_total{answer="broken",process="delivery-1",receiver="tracker"} 1.0',
        'resequencer_delivery_call_seconds_bucket{le="0.5",process="delivery-1",receiver="tracker"} 3.0',
        'resequencer_delivery_call_seconds_bucket{le="+Inf",process="delivery-1",receiver="tracker"} 4.0',
        'resequencer_delivery_call_seconds_count{process="delivery-1",receiver="tracker"} 4.0',
        'resequencer_delivery_call_seconds_sum{process="delivery-1",receiver="tracker"} 7.5',
        'resequencer_delivery_gate_open{receiver="mail"} 0.0',
        'resequencer_delivery_gate_open{receiver="fax"} 1.0',
        'resequencer_delivery_topic_lag_offsets{receiver="mail",topic="T"} 5.0',
        'resequencer_delivery_topic_lag_offsets{receiver="mail",topic="T-g-retry-1"} 0.0',
        'resequencer_delivery_records_blocked{receiver="mail",topic="T"} 2.0',
        'resequencer_delivery_records_blocked{receiver="mail",topic="T-g-retry-1"} 0.0',
        'resequencer_delivery_oldest_open_timestamp_seconds{receiver="mail",topic="T"} 1.7747208015e+09',
        'resequencer_delivery_partitions_paused{receiver="mail",topic="T"} 1.0',
        'resequencer_delivery_partitions_paused{receiver="mail",topic="T-g-retry-1"} 1.0',
        "resequencer_delivery_workers_delivering 2.0",
        'resequencer_delivery_gate_open{receiver="tracker"} 1.0',
        'resequencer_delivery_gate_open{receiver="bank"} 0.0',
        'resequencer_delivery_rows_waiting{receiver="tracker"} 3.0',
        'resequencer_delivery_rows_waiting{receiver="bank"} 7.0',
        'resequencer_delivery_rows_failed{receiver="tracker"} 4.0',
        'resequencer_delivery_rows_failed{receiver="bank"} 0.0',
        'resequencer_delivery_units_held{receiver="tracker"} 2.0',
        'resequencer_delivery_units_held{receiver="bank"} 0.0',
        'resequencer_delivery_jobs_stalled{receiver="tracker"} 1.0',
        'resequencer_delivery_jobs_stalled{receiver="bank"} 0.0',
        'resequencer_delivery_jobs_missing{receiver="tracker"} 2.0',
        'resequencer_delivery_jobs_missing{receiver="bank"} 0.0',
        'resequencer_delivery_intake_age_seconds{receiver="tracker"} 1.5',
        'resequencer_delivery_rows_retried{mode="limit",receiver="tracker"} 6.0',
    }
    for given, expected in ((known, shown), (DeliveryStatus(), set())):
        text = text_of(ServiceCollector(lambda: None, find_delivery=lambda given=given: given))
        assert {line for line in text.splitlines() if line.startswith("resequencer_delivery_")} == expected


def test_schedules_are_shown_and_what_is_not_known_of_them_is_absent():
    schedules = (
        ScheduleStatus(
            "end-of-day", "0 18 * * * (UTC)", "2026-03-28T18:00:00.000Z", 3, 9, "2026-03-29T18:00:00.000Z", ticks_waiting=2.3
        ),
        ScheduleStatus("monthly", "0 0 1 * * (UTC)", overdue_since="2026-03-01T00:00:00.000Z", problem="no topic"),
    )
    lines = text_of(ServiceCollector(lambda: None, find_delivery=lambda: DeliveryStatus(schedules=schedules))).splitlines()
    assert {line for line in lines if line.startswith("resequencer_schedule_")} == {
        'resequencer_schedule_tick_timestamp_seconds{schedule="end-of-day"} 1.7747208e+09',
        'resequencer_schedule_overdue_tick_timestamp_seconds{schedule="monthly"} 1.7723232e+09',
        'resequencer_schedule_requests{schedule="end-of-day"} 9.0',
        'resequencer_schedule_requests{schedule="monthly"} 0.0',
        'resequencer_schedule_requests_made_total{schedule="end-of-day"} 9.0',
        'resequencer_schedule_requests_made_total{schedule="monthly"} 0.0',
        'resequencer_schedule_ticks_waiting{schedule="end-of-day"} 2.3',
    }


def test_the_bridge_is_shown_and_absent_where_none_is_configured():
    def shown(bridge):
        lines = text_of(ServiceCollector(lambda: None, find_bridge=lambda: BridgeStatus(bridge))).splitlines()
        return {line.removeprefix("resequencer_bridge_") for line in lines if line.startswith("resequencer_bridge_")}

    assert shown(None) == set()
    runs = BridgeState(7, None, "mqtt://b T/#", "topic T", 12, 3)
    assert shown(runs) == {"running 1.0", "stands_still 0.0", "messages_waiting 3.0", "messages_appended_total 12.0"}
    assert {"running 1.0", "stands_still 1.0"} <= shown(BridgeState(7, "start: it is away"))
    assert {"running 0.0", "stands_still 1.0"} <= shown(BridgeState(None, "it is starting"))


def test_users_own_stores_are_shown_where_there_are_no_groups():
    reported = AggregationStatus((SideStatus(0, 7, None),), (StoreStatus("jobs", ("F-0",), 5, 9, 2, 1),))
    lines = text_of(ServiceCollector(lambda: None, find_aggregation=lambda: reported)).splitlines()
    assert 'resequencer_aggregation_commands_behind{store="jobs"} 5.0' in lines
    assert not [line for line in lines if line.startswith("resequencer_groups")]


def test_stores_and_groups_are_shown_and_what_cannot_be_read_is_absent(tmp_path):
    stage = GroupStage(tmp_path)
    workers = (SideStatus(0, 7, None), SideStatus(1, None, "it is starting"))
    counts = StoreCounts("payments", 0, 9, 2, 1), StoreCounts("payments", 1, 0, 0, 0)
    stage.reported = AggregationStatus(
        workers, (StoreStatus("payments", ("F-0",), 5, 9, 2, 1, "the brokers do not answer"),), counts
    )
    stage.status("A", "a1", total=1)
    stage.status("B", "b1", "ACSP")
    stage.status("C", "c1", total=None)
    stage.count()
    groups = Groups(stage, stage.clock)
    application = make_metrics_application(ServiceCollector(lambda: None, groups=groups, find_aggregation=stage.find_status))
    reported = {
        "resequencer_aggregation_workers_running 1.0",
        'resequencer_aggregation_store_stands_still{store="payments"} 1.0',
        'resequencer_aggregation_lag_offsets{store="payments"} 5.0',
        'resequencer_aggregation_commands_behind{store="payments"} 5.0',
        'resequencer_aggregation_commands_applied_total{process="aggregation-0",store="payments"} 9.0',
        'resequencer_aggregation_commands_applied_total{process="aggregation-1",store="payments"} 0.0',
        'resequencer_aggregation_completions_total{process="aggregation-0",store="payments"} 2.0',
        'resequencer_aggregation_completions_total{process="aggregation-1",store="payments"} 0.0',
        'resequencer_aggregation_dead_letters_total{process="aggregation-0",store="payments"} 1.0',
        'resequencer_aggregation_dead_letters_total{process="aggregation-1",store="payments"} 0.0',
    }

    def shown():
        lines = TestClient(application).get("/metrics").text.splitlines()
        return {line for line in lines if line.startswith(("resequencer_aggregation_", "resequencer_groups"))}

    reported.add("resequencer_groups_readable 0.0")
    assert shown() == reported
    groups.watch.refresh()
    read = {
        "resequencer_groups_readable 1.0",
        'resequencer_groups{state="complete"} 1.0',
        'resequencer_groups{state="open"} 2.0',
        "resequencer_groups_with_problems 1.0",
        "resequencer_groups_oldest_open_timestamp_seconds 1.7747400e+09",
    }
    assert {line.replace("1.77474e+09", "1.7747400e+09") for line in shown()} == (
        reported - {"resequencer_groups_readable 0.0"}
    ) | read
    groups.watch._close_view()
    stage.is_away = True
    groups.watch.refresh()
    assert shown() == reported
    stage.reported = AggregationStatus(workers, (StoreStatus("payments", ("F-0",), untaken=1),))
    assert 'resequencer_aggregation_store_stands_still{store="payments"} 1.0' in shown()
    stage.reported = AggregationStatus(workers, (StoreStatus("payments", ("F-0",)),))
    assert 'resequencer_aggregation_store_stands_still{store="payments"} 0.0' in shown()
    groups.close()
    stage.close()
