"""Errors about missing programs that the servers need: which is missing, and what to do."""

import os
from pathlib import Path

import pytest
from harness.packages import ROOT

from notification_service.jobs import maven
from servers import postgresql as postgresql
from servers import prometheus as program
from servers.postgresql import find_postgresql
from servers.programs import find_java, get_jars
from servers.prometheus import find_prometheus, find_promtool
from servers.redis import find_redis
from servers.server import ProgramMissing, ServersError

CACHE = maven.CACHE


@pytest.fixture(autouse=True)
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A PATH with only the programs that the test adds, and no jars."""
    directory = tmp_path / "programs"
    directory.mkdir()
    monkeypatch.setenv("PATH", str(directory))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setattr(maven, "CACHE", tmp_path / "jars")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    return directory


def put(directory: Path, name: str, script: str) -> Path:
    directory.mkdir(exist_ok=True)
    program = directory / name
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return program


@pytest.mark.parametrize(("number", "is_enough"), [("17.0.15", True), ("21-ea", True), ("11.0.2", False), ("1.8.0_392", False)])
def test_java_17_or_newer_is_enough(programs: Path, number: str, is_enough: bool) -> None:
    java = put(programs, "java", f"echo 'openjdk version \"{number}\" 2025-04-15' >&2")
    if is_enough:
        assert find_java() == java
    else:
        with pytest.raises(ProgramMissing, match=rf"need Java 17 or newer, but {java} is .*apt-get install openjdk-17"):
            find_java()


def test_java_home_goes_before_path(programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(programs, "java", "echo 'version \"11\"'")
    home = tmp_path / "jdk"
    home.mkdir()
    java = put(home / "bin", "java", "echo 'version \"21\"'")
    monkeypatch.setenv("JAVA_HOME", str(home))
    assert find_java() == java


def test_without_java_it_says_where_it_looked() -> None:
    with pytest.raises(ProgramMissing, match=r"there is no java on PATH. Install a JDK 17 or newer"):
        find_java()


def test_without_maven_it_says_what_maven_is_needed_for() -> None:
    with pytest.raises(ServersError, match=r"jars of kafka are fetched by Maven, and there is no mvn on PATH. Install Maven"):
        get_jars("kafka")


def test_jars_lie_in_the_checkout() -> None:
    assert CACHE == ROOT / ".servers"


def test_jars_are_fetched_once_and_without_the_network_if_that_is_enough(programs: Path, tmp_path: Path) -> None:
    calls = tmp_path / "calls"
    put(
        programs,
        "mvn",
        f'echo "$1" >> {calls}; for each; do case $each in -DoutputDirectory=*) echo > "${{each#*=}}/one.jar"; esac; done',
    )
    assert get_jars("kafka") == get_jars("kafka")
    assert [each.name for each in get_jars("kafka").iterdir()] == ["one.jar"]
    assert calls.read_text().split() == ["--offline"]


def test_what_maven_complains_of_is_passed_on_and_nothing_stays_behind(programs: Path) -> None:
    put(programs, "mvn", "echo '[ERROR] repo.example is unknown'; exit 1")
    with pytest.raises(ServersError, match=r"(?s)jars of infinispan.*settings.xml.*repo.example is unknown"):
        get_jars("infinispan")
    assert [each.name for each in maven.CACHE.iterdir()] == ["infinispan.lock"]


def test_without_redis_it_says_how_to_get_it() -> None:
    with pytest.raises(ProgramMissing, match=r"no redis-server on PATH. Install Redis 7 or newer"):
        find_redis()


def test_root_on_debian_gets_redis_installed(programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    redis = programs / "redis-server"
    put(programs, "apt-get", f'if [ "$1" = install ]; then echo > {redis}; /bin/chmod 755 {redis}; fi')
    assert find_redis() == redis


def test_an_installation_that_fails_says_why(programs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    put(programs, "apt-get", "echo 'E: no network' >&2; exit 100")
    with pytest.raises(ProgramMissing, match=r"'apt-get update -qq' failed: E: no network"):
        find_redis()


@pytest.fixture
def debian(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory where the package puts PostgreSQL's versions."""
    monkeypatch.setattr(postgresql, "_PLACES", f"{tmp_path}/postgresql/*/bin")
    monkeypatch.setattr(postgresql, "_CLUSTERS", tmp_path / "etc" / "createcluster.conf")
    return tmp_path / "postgresql"


def test_the_highest_version_of_postgresql_that_debian_installed_is_taken(debian: Path) -> None:
    for version in ("9.6", "15", "14"):
        (debian / version).mkdir(parents=True)
        put(debian / version / "bin", "initdb", "")
    assert find_postgresql() == debian / "15" / "bin"


def test_a_link_on_path_leads_to_all_programs_of_postgresql(programs: Path, debian: Path) -> None:
    (debian / "14").mkdir(parents=True)
    (programs / "initdb").symlink_to(put(debian / "14" / "bin", "initdb", ""))
    assert find_postgresql() == debian / "14" / "bin"


def test_without_postgresql_it_says_how_to_get_it(debian: Path) -> None:
    with pytest.raises(ProgramMissing, match=r"no initdb on PATH. Install PostgreSQL 14 or newer"):
        find_postgresql()


def test_root_on_debian_gets_postgresql_installed_and_no_cluster_of_the_machine(
    programs: Path, debian: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    installed, clusters = debian / "15" / "bin" / "initdb", tmp_path / "etc" / "createcluster.conf"
    installs = f"/bin/mkdir -p {installed.parent}; /bin/cp {clusters} {installed}; /bin/chmod 755 {installed}"
    put(programs, "apt-get", f'if [ "$1" = install ]; then {installs}; fi')
    assert find_postgresql() == installed.parent
    assert installed.read_text() == "create_main_cluster = false\n"  # It was there before the installation.


def test_prometheus_on_path_is_taken(programs: Path) -> None:
    found = put(programs, "prometheus", ""), put(programs, "promtool", "")
    assert (find_prometheus(), find_promtool()) == found


def test_without_prometheus_and_apt_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "cache").mkdir()
    monkeypatch.setattr(program, "CACHE", tmp_path / "cache")
    with pytest.raises(ProgramMissing, match=r"There is no Prometheus on PATH\. Install Prometheus.*--no-install-recommends"):
        find_prometheus()
