"""The file that describes the sources of the lookups."""

from collections.abc import Callable
from pathlib import Path

import pytest

from notification_service.configuration.configuration import Configuration
from notification_service.configuration.lookup_sources import Job, load_job_settings, load_spark_settings
from notification_service.jobs.spark.job_settings import JobSettings, LearningSettings, Limits, SourceSettings
from notification_service.lookups.shapes import CUSTOMERS, INSTITUTIONS, PROFILES, REASONS, SETTINGS
from notification_service.payments.strategies import StrategySettings
from resequencer.errors import ConfigurationError

N = "payment-status-notification"
CUSTOMER = "sources.customers = [{{ format = csv, path = x.csv, {} }}]"


@pytest.fixture
def described(tmp_path: Path, loaded: Callable[..., Configuration]) -> Callable[[str], JobSettings]:
    """Return the settings of the job for a file with this text."""

    def described(text: str) -> JobSettings:
        (tmp_path / "own.conf").write_text(text)
        return load_job_settings(loaded(f'{N}.lookups.sources = "{tmp_path}/own.conf"'))

    return described


def test_the_shipped_file_names_sources_that_are_shipped(loaded: Callable[..., Configuration]) -> None:
    settings = load_job_settings(loaded(f'{N}.run-directory = "run/x"'))
    assert (settings.directory, settings.keep, settings.limits) == (Path("run/x/lookups"), 3, Limits())
    assert {name: [each.format for each in sources] for name, sources in settings.sources.items()} == {
        SETTINGS: ["csv"], REASONS: ["project-codes"], INSTITUTIONS: ["bank-registry"], CUSTOMERS: [], PROFILES: []
    }  # fmt: skip
    assert Path(settings.sources[SETTINGS][0].path).is_file()
    assert (settings.spark["spark.driver.memory"], settings.copy_to) == ("2g", "")


def test_all_that_a_source_may_say_is_read(described: Callable[[str], JobSettings], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OF_CUSTOMERS", "hidden")
    settings = described(
        """
        sources.customers = [
          { format = csv, path = "a/*.csv", delimiter = ";", columns { account = "KONTO" }, required-good-share = 0.5 }
          { format = jdbc, url = "jdbc:postgresql://h/d", table = "(SELECT 1) AS t", user = u, password = ${?OF_CUSTOMERS} }
        ]
        limits { row-drop = 0.5, contradictions = 0.1 }
        copy-to = "hdfs://n/lookups"
        spark { master = "spark://h:7077", options { "spark.executor.memory" = 4g } }
        """
    )
    first, second = settings.sources[CUSTOMERS]
    assert first == SourceSettings("csv", "a/*.csv", ";", {"account": "KONTO"}, 0.5)
    assert (second.password, second.place) == ("hidden", "jdbc:postgresql://h/d (SELECT 1) AS t")
    assert settings.limits == Limits(row_drop=0.5, contradictions=0.1)
    assert (settings.master, settings.spark) == ("spark://h:7077", {"spark.executor.memory": "4g"})
    assert settings.copy_to == "hdfs://n/lookups"


def test_a_job_has_options_of_its_own_which_count_before_those_of_all_and_a_name(
    tmp_path: Path, loaded: Callable[..., Configuration]
) -> None:
    (tmp_path / "own.conf").write_text("""
        spark.options { "spark.driver.memory" = "2g", "spark.ui.enabled" = "true" }
        spark.audit.options { "spark.driver.memory" = "8g" }
        spark.archive-topics { options { "spark.cores.max" = "1" } }
    """)
    configuration = loaded(f'{N}.lookups.sources = "{tmp_path}/own.conf"')
    of_all = {"spark.driver.memory": "2g", "spark.ui.enabled": "true"}
    found = {job: load_spark_settings(configuration, job) for job in Job}
    assert found[Job.LOOKUPS].options == load_job_settings(configuration).spark == of_all
    assert found[Job.AUDIT].options == of_all | {"spark.driver.memory": "8g"}
    assert found[Job.ARCHIVE_TOPICS].options == of_all | {"spark.cores.max": "1"}
    assert [each.application for each in found.values()] == [
        "resequencer lookups",
        "resequencer archive-topics",
        "resequencer audit",
    ]


def test_an_archive_is_the_one_that_is_configured_unless_it_is_named(described: Callable[[str], JobSettings]) -> None:
    settings = described(
        "sources.completion-profiles = [{ format = archive }, { format = archive, path = hdfs://h/a, days = 7, least-late = 50 }]"
    )
    configured, named = settings.sources[PROFILES]
    assert (configured.path, configured.days, configured.least_late) == ("run/service/records", 30, 1_000)
    assert (named.path, named.days, named.least_late) == ("hdfs://h/a", 7, 50)
    assert settings.learning == LearningSettings(StrategySettings("FULL_PAIN001"), "IPF_PROCESSING_DATA", 5 << 20)


def test_of_files_there_is_no_archive_to_learn_from(tmp_path: Path, loaded: Callable[..., Configuration]) -> None:
    (tmp_path / "own.conf").write_text("sources.completion-profiles = [{ format = archive }]")
    files = f"ipf.processing-data.ingress.transport = file\n{N}.transport = file\n"
    with pytest.raises(ConfigurationError, match=r"completion-profiles\[0\]: files have no arrival times"):
        load_job_settings(loaded(f'{files}{N}.lookups.sources = "{tmp_path}/own.conf"'))


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("sources.customer = []", "sources.customer: unknown key; did you mean sources.customers?"),
        ("sources.customers = 5", "sources.customers: must be a list of sources"),
        ("sources.customers = [{ format = xml }]", "sources.customers[0]: is refused: Invalid enum value 'xml'"),
        (CUSTOMER.format("pathh = y"), "unknown field `pathh`"),
        ("sources.customers = [{ format = csv }]", "sources.customers[0]: path is missing; csv needs it"),
        ("sources.customers = [{ format = jdbc, url = x }]", "sources.customers[0]: table is missing; jdbc needs it"),
        (CUSTOMER.format("required-good-share = 2"), "required-good-share is a share, from 0 to 1"),
        (CUSTOMER.format('delimiter = ";;"'), "delimiter ';;' is refused; give one character"),
        ("limits.row-dorp = 0.1", "limits: is refused: Object contains unknown field `row-dorp`"),
        ("speed = 5", "speed: unknown key"),
        ('spark.options { "spark.executor.memory" = 512m }', "spark.options.spark.executor.memory: is read as a duration"),
        ("sources.customers = [{ format = archive }]", "sources.customers[0]: archive: only completion-profiles can be"),
        ("sources.completion-profiles = [{ format = archive, days = 0 }]", "days and least-late are whole numbers from 1 on"),
    ],
)
def test_what_is_wrong_with_it_is_refused_with_file_key_and_remedy(
    described: Callable[[str], JobSettings], text: str, error: str
) -> None:
    with pytest.raises(ConfigurationError) as refused:
        described(text)
    assert error in str(refused.value)
    assert "own.conf" in str(refused.value)


def test_a_file_that_is_not_there_is_refused_by_name(loaded: Callable[..., Configuration]) -> None:
    with pytest.raises(ConfigurationError, match=r"nowhere\.conf"):
        load_job_settings(loaded(f"{N}.lookups.sources = nowhere.conf"))


def test_a_lookup_of_ones_own_is_named_with_its_sources(described: Callable[[str], JobSettings]) -> None:
    settings = described('specs.desks = "a.b:DESKS"\nsources.desks = [{ format = csv, path = x.csv }]')
    assert settings.specs == {"desks": "a.b:DESKS"}
    assert [each.path for each in settings.sources["desks"]] == ["x.csv"]
    assert list(settings.sources) == [SETTINGS, REASONS, INSTITUTIONS, CUSTOMERS, PROFILES, "desks"]


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("sources.desks = [{ format = csv, path = x.csv }]", "; a lookup of your own needs specs.desks"),
        ('specs.desks = "a.b:DESKS"', "specs.desks: it has no sources; name them, sources.desks = "),
        ('specs.desks = "a.b:DESKS"\nsources.desk = [{}]', "sources.desk: unknown key; did you mean sources.desks?"),
        ('specs.desks = "a.b"\nsources.desks = [{}]', "specs.desks: 'a.b' is refused; write package.module:NAME"),
        ("specs.desks = null\nsources.desks = [{}]", "specs.desks: None is refused; write package.module:NAME"),
        ('specs.customers = "a.b:C"', "specs.customers: 'customers' is no name for a lookup of your own; use "),
        ('specs.Desks = "a.b:C"', "specs.Desks: 'Desks' is no name for a lookup of your own"),
        ('specs.a.b = "a.b:C"', "specs.a.b: 'a.b' is no name for a lookup of your own"),
    ],
)
def test_a_lookup_of_ones_own_that_is_not_whole_is_refused(
    described: Callable[[str], JobSettings], text: str, error: str
) -> None:
    with pytest.raises(ConfigurationError) as refused:
        described(text)
    assert error in str(refused.value)
