"""The whole job: what it publishes, what it quarantines, and when it publishes nothing."""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from notification_service.jobs.errors import JobRefused
from notification_service.jobs.lookups import job as lookups_job
from notification_service.jobs.lookups.job import Built, build_lookups
from notification_service.jobs.lookups.reading import Reading, read_sources
from notification_service.jobs.spark.job_settings import JobSettings, Limits, SourceSettings
from notification_service.lookups.directory import LookupsDirectory
from notification_service.lookups.release import Release, open_release
from notification_service.lookups.shapes import CUSTOMERS, REASONS, SETTINGS, NoRelease, PublishingRefused
from notification_service.payments.enrichment import Lookups
from resequencer.printable import without_secrets

NOW = 1_790_000_000_000
FLOW = "PaymentInitiationFlow"
HEADER = "initiating_party,channel,valid_from\n"
BLOCK_BYTES = "spark.sql.files.maxPartitionBytes"
AS_SHIPPED = Limits()
Build = Callable[..., Built]


@pytest.fixture
def directory(tmp_path: Path) -> LookupsDirectory:
    return LookupsDirectory(tmp_path / "lookups")


@pytest.fixture
def build(spark: SparkSession, directory: LookupsDirectory) -> Build:
    """Run the job with these sources by name; `tell` may end it at a step."""
    numbers = iter(range(1_000))

    def build(tell: Callable[[str], None] = lambda _: None, limits: Limits = AS_SHIPPED, **sources: Any) -> Built:
        named = {name.replace("_", "-"): tuple(each) for name, each in sources.items()}
        settings = JobSettings(directory.path, 3, named, limits)
        return build_lookups(spark, settings, NOW + next(numbers), "1.2.3", tell)

    return build


@pytest.fixture
def customers(tmp_path: Path) -> Callable[..., SourceSettings]:
    def customers(*rows: str, **described: Any) -> SourceSettings:
        file = tmp_path / "customers.csv"
        file.write_text(HEADER + "".join(f"{row}\n" for row in rows))
        return SourceSettings("csv", str(file), **described)

    return customers


def opened(directory: LookupsDirectory) -> Release:
    return open_release(directory, directory.get_current())


def test_what_the_sources_say_is_what_the_handlers_find(
    build: Build, directory: LookupsDirectory, tmp_path: Path, customers: Callable[..., SourceSettings]
) -> None:
    codes = tmp_path / "codes.json"
    codes.write_text(json.dumps({"codes": {"MS03": "Nothing specified.", "AC01": {"name": "IncorrectAccountNumber"}}}))
    settings = tmp_path / "settings.csv"
    settings.write_text(
        "process_flow_name,event_name,transaction_status,reason_code,additional_information,processing_entity\n"
        f"{FLOW},PaymentAccepted,ACCP,,,\n{FLOW},PaymentRejected,RJCT,MS03,,\n{FLOW},PaymentAccepted,ACSP,,Ours,BANK_002\n"
        f"{FLOW},Mistyped,RJCT,XX01,,\n"
    )
    steps: list[str] = []
    built = build(
        steps.append,
        status_reasons=[SourceSettings("project-codes"), SourceSettings("iso-codes", str(codes))],
        notification_settings=[SourceSettings("csv", str(settings), required_good_share=0.7)],
        customers=[customers("P1,email,2026-01-01", "P1,push,2026-02-01", "P2,by post,", required_good_share=0.6)],
    )
    assert steps == [f"{name}: {step}" for name in (REASONS, SETTINGS, CUSTOMERS) for step in ("reading", "writing")]
    release = opened(directory)
    found = Lookups(release)
    assert release.version == built.version
    accepted = found.find_setting("BANK_002", FLOW, "PaymentAccepted")
    assert accepted is not None
    assert (accepted.transaction_status, accepted.additional_information) == ("ACSP", ("Ours",))
    rejected = found.find_setting(None, FLOW, "PaymentRejected")
    assert rejected is not None
    assert rejected.reason_words == ("Nothing specified.",)
    assert found.find_setting(None, FLOW, "Mistyped") is None
    assert found.find_words("AC01") == ("IncorrectAccountNumber",)
    customer = found.find_customer("party", "P1")
    assert customer is not None
    assert customer.channel == "push"
    release.close()
    counts = {
        each.name: (each.keys, each.doubled, [(one.rows_read, one.rows_refused) for one in each.sources])
        for each in built.lookups
    }
    assert counts[SETTINGS] == (3, 0, [(4, 1)])
    assert counts[CUSTOMERS] == (1, 1, [(3, 1)])
    assert counts[REASONS][2][1] == (2, 0)
    refused = [
        json.loads(line) for file in Path(str(built.quarantine)).glob("*/part-*") for line in file.read_text().splitlines()
    ]
    assert sorted((each["reason"], Path(each["source"]).name, each["line"]) for each in refused) == [
        ("channel 'by post' is no channel: 1 to 35 letters, digits, dots, underscores and hyphens", "customers.csv", 4),
        ("reason_code 'XX01' is in no set of status reasons", "settings.csv", 5),
    ]
    manifest = release.manifest
    assert (manifest.job_version, {each.table for each in manifest.sources}) == ("1.2.3", {REASONS, SETTINGS, CUSTOMERS})


def test_what_is_not_fit_publishes_nothing_and_the_release_before_it_stays(
    build: Build, directory: LookupsDirectory, customers: Callable[..., SourceSettings]
) -> None:
    first = build(customers=[customers(*(f"P{number},email," for number in range(10)))])
    again = build(customers=[customers(*(f"P{number},email," for number in reversed(range(10))))])
    fingerprints = [built.lookups[0].sources[0].fingerprint for built in (first, again)]
    assert fingerprints[0] == fingerprints[1], "the same content in another order"
    for rows, limits, problem in (
        (["P1,email,", "P2,by post,"], Limits(), "1 of 2 rows of customers were refused, which leaves 0.5000 of them; 1 are"),
        (["P1,email,", "P1,push,"], Limits(row_drop=1.0), "1 of 1 keys contradict themselves, more than the share 0 "),
        (["P1,email,"], Limits(), "1 key after 10 in the release before, a loss of more than the share 0.2"),
        ([], Limits(), "has no rows"),
    ):
        with pytest.raises(JobRefused) as refused:
            build(limits=limits, customers=[customers(*rows)])
        assert problem in str(refused.value)
        assert directory.get_current().version == again.version
    opened(directory).close()
    built = build(limits=Limits(row_drop=1.0, contradictions=0.5), customers=[customers("P1,email,", "P1,push,", "P2,email,")])
    assert (built.lookups[0].keys, built.lookups[0].contradictory) == (1, 1)
    (file,) = Path(str(built.quarantine)).glob("customers-contradictions/part-*")
    assert sorted(json.loads(line)["line"] for line in file.read_text().splitlines()) == [2, 3]
    assert list(directory.building.glob("*")) == []


@pytest.mark.parametrize(
    ("quarantine", "reason", "text", "contradictory"),
    [
        ("masked", "valid_from '**.**.****' is no day (2026-03-28)", "DE** **** ****,email,**.**.****", "account DE********"),
        ("plain", "valid_from '28.03.2026' is no day (2026-03-28)", "DE89 3704 0044,email,28.03.2026", "account DE12345678"),
    ],
)
def test_no_account_can_be_read_in_the_quarantine_unless_it_is_asked_for(
    spark: SparkSession, directory: LookupsDirectory, tmp_path: Path, quarantine: Any, reason: str, text: str, contradictory: str
) -> None:
    file = tmp_path / "customers.csv"
    rows = ("DE89 3704 0044,email,28.03.2026", "DE12345678,email,", "DE12345678,push,")
    file.write_text("account,channel,valid_from\n" + "".join(f"{row}\n" for row in rows))
    sources = {CUSTOMERS: (SourceSettings("csv", str(file), required_good_share=0.5),)}
    settings = JobSettings(directory.path, 3, sources, Limits(contradictions=1.0), quarantine=quarantine)
    built = build_lookups(spark, settings, NOW, "1.2.3", lambda _: None)
    kept = [json.loads(line) for file in Path(str(built.quarantine)).rglob("part-*") for line in file.read_text().splitlines()]
    counts = {each["line"]: (each["reason"], each["text"]) for each in kept}
    assert counts[2] == (reason, text)
    assert counts[3][0] == f"contradicts another row of the key '{contradictory}' "


def test_a_column_that_lost_its_values_is_refused(
    build: Build, directory: LookupsDirectory, customers: Callable[..., SourceSettings]
) -> None:
    """The column was renamed, so the few customers with a value would be treated like all others."""
    rows = [f"P{number},{'email' if number < 2 else ''}," for number in range(20)]
    first = build(customers=[customers(*rows)])
    lost = [row.replace("email", "") for row in rows]
    with pytest.raises(JobRefused) as refused:
        build(customers=[customers(*lost)])
    assert "customers.csv: 0.0000 of the rows of customers have a value in the column 'channel' after 0.1000" in str(
        refused.value
    )
    assert directory.get_current().version == first.version
    build(limits=Limits(value_drop=1.0), customers=[customers(*lost)])


def test_a_lookup_without_sources_is_refused_where_the_release_before_has_it(
    build: Build, directory: LookupsDirectory, customers: Callable[..., SourceSettings]
) -> None:
    codes = [SourceSettings("project-codes")]
    first = build(status_reasons=codes, customers=[customers("P1,email,")])
    with pytest.raises(JobRefused, match=r"customers: 0 keys after 1 in the release before, .*name its sources again"):
        build(status_reasons=codes, customers=[])
    assert directory.get_current().version == first.version
    assert len(build(limits=Limits(row_drop=1.0), status_reasons=codes, customers=[]).lookups) == 1


class _Killed(BaseException):
    pass


def test_a_job_that_dies_between_two_steps_leaves_the_old_release(
    build: Build, directory: LookupsDirectory, customers: Callable[..., SourceSettings]
) -> None:
    source = customers("P1,email,")

    def dying(step: str) -> None:
        if step == f"{CUSTOMERS}: writing":
            raise _Killed

    with pytest.raises(_Killed):
        build(dying, status_reasons=[SourceSettings("project-codes")], customers=[source])
    with pytest.raises(NoRelease):
        directory.get_current()
    assert len(list(directory.building.glob("*"))) == 1
    version = build(customers=[source]).version
    assert (directory.get_current().version, list(directory.building.glob("*"))) == (version, [])


def test_rows_that_were_counted_and_do_not_come_through_are_refused(
    spark: SparkSession,
    build: Build,
    directory: LookupsDirectory,
    customers: Callable[..., SourceSettings],
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> None:
    """The blocks differ between the two queries, as they do if the division is not fixed."""
    source = customers(*(f"P{number},email," for number in range(3_000)))
    request.addfinalizer(partial(spark.conf.set, BLOCK_BYTES, spark.conf.get(BLOCK_BYTES)))

    def read_with_other_blocks(*described: Any) -> Reading:
        reading = read_sources(*described)
        spark.conf.set(BLOCK_BYTES, 3_000)
        return reading

    monkeypatch.setattr(lookups_job, "read_sources", read_with_other_blocks)
    with pytest.raises(JobRefused, match=r"customers.csv: 3000 rows of customers were counted, but \d+ were read"):
        build(customers=[source])
    with pytest.raises(NoRelease):
        directory.get_current()


def test_a_source_that_changes_while_it_is_read_is_refused(
    build: Build, directory: LookupsDirectory, customers: Callable[..., SourceSettings]
) -> None:
    source = customers("P1,email,", "P2,email,")

    def changing(step: str) -> None:
        if step == f"{CUSTOMERS}: writing":
            customers("P1,email,", "P3,email,")

    with pytest.raises(JobRefused, match=r"customers.csv: changed while it was read \(2 rows of customers, then 2\)"):
        build(changing, customers=[source])
    with pytest.raises(NoRelease):
        directory.get_current()


def test_of_two_jobs_at_once_one_is_refused(
    build: Build, directory: LookupsDirectory, customers: Callable[..., SourceSettings]
) -> None:
    with directory.publishing(), pytest.raises(PublishingRefused, match="wait for that to end"):
        build(customers=[customers("P1,email,")])


def test_the_password_of_a_sources_url_is_not_said(build: Build) -> None:
    sources = (
        SourceSettings("jdbc", url="jdbc:postgresql://reader:geheim@127.0.0.1:9/bank", table="customers"),
        SourceSettings("csv", "nowhere://reader:geheim@127.0.0.1:9/customers.csv"),
    )
    for source in sources:
        with pytest.raises(JobRefused) as refused:
            build(customers=[source])
        assert "://reader:***@127.0.0.1:9/" in str(refused.value)
        assert "geheim" not in without_secrets(str(refused.value))


def test_a_job_without_sources_says_so(build: Build) -> None:
    with pytest.raises(JobRefused, match="no lookup has a source"):
        build()


def test_a_code_set_that_is_none_is_refused_by_name(build: Build, tmp_path: Path) -> None:
    for content in ("", "{", "[]", '{"codes": 5}'):
        (tmp_path / "codes.json").write_text(content)
        with pytest.raises(JobRefused, match=r"codes\.json: cannot be read as a code set"):
            build(status_reasons=[SourceSettings("iso-codes", str(tmp_path / "codes.json"))])
