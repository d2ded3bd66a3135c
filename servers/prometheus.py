"""A Prometheus server."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import httpx

from notification_service.jobs.maven import CACHE, locked
from servers.server import LOOPBACK, ProgramMissing, Server

_REMEDY = (
    "Install Prometheus, so that prometheus and promtool are on PATH. "
    "On Debian and Ubuntu: apt-get install --no-install-recommends prometheus"
)
_SECONDS = 600
_UPDATE = ("apt-get", "update", "-qq")
_DOWNLOAD = ("apt-get", "download", "-qq", "prometheus")


def find_promtool() -> Path:
    """Return `promtool`, which checks metrics and rules; as `find_prometheus`."""
    return _find("promtool")


def find_prometheus() -> Path:
    """Return `prometheus` from PATH, else from the package, which one process downloads and unpacks while others wait.

    An installation of the package would start a server.

    Raises:
        ProgramMissing: There is none, and it could not be unpacked.
    """
    return _find("prometheus")


def _find(name: str) -> Path:
    found = shutil.which(name)
    if found is not None:
        return Path(found)
    directory = CACHE / "prometheus"
    unpacked = directory / "usr" / "bin" / name
    with locked(CACHE / "prometheus.lock"):
        if not unpacked.exists():
            _unpack(directory)
    return unpacked


def _unpack(directory: Path) -> None:
    if not (shutil.which("apt-get") and shutil.which("dpkg-deb")):
        raise ProgramMissing("There is no Prometheus on PATH", _REMEDY)
    print("Unpacking Prometheus", file=sys.stderr)  # noqa: T201 - It takes a while.
    directory.mkdir(parents=True, exist_ok=True)
    if os.geteuid() == 0:
        _run(_UPDATE, directory)
    _run(_DOWNLOAD, directory)
    package = next(directory.glob("prometheus_*.deb"))
    _run(("dpkg-deb", "-x", str(package), str(directory)), directory)
    package.unlink()


def _run(command: tuple[str, ...], directory: Path) -> None:
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=_SECONDS, check=False)  # noqa: S603 - all ours.
    if done.returncode:
        words = (done.stderr or done.stdout).strip().splitlines()[-1:] or ["nothing"]
        raise ProgramMissing(f"There is no Prometheus on PATH, and '{' '.join(command)}' failed: {words[0]}", _REMEDY)


_ANSWER_SECONDS, _CLIENT_SECONDS = 2, 60


@dataclass(frozen=True, slots=True)
class PrometheusSettings:
    """What is scraped and evaluated, both every `seconds`.

    `targets` are addresses (`host:port`) that answer `/metrics`, all of the job `job`; `rules` are files.
    """

    job: str
    targets: tuple[str, ...]
    rules: tuple[Path, ...] = ()
    seconds: int = 1


class PrometheusServer(Server):
    """A `Server`. It sends its alerts nowhere; `find_alerts` asks for them."""

    name: ClassVar[str] = "prometheus"
    port_names: ClassVar[Sequence[str]] = ("prometheus",)

    def __init__(self, directory: Path, settings: PrometheusSettings, wanted: Mapping[str, int] | None = None) -> None:
        super().__init__(directory, wanted)
        self.settings = settings

    @property
    def url(self) -> str:
        return f"http://{LOOPBACK}:{self.ports['prometheus']}"

    def is_ready(self) -> bool:
        try:
            return httpx.get(f"{self.url}/-/ready", timeout=_ANSWER_SECONDS).is_success
        except httpx.HTTPError:
            return False

    def query(self, expression: str) -> Sequence[Mapping[str, Any]]:
        """Return the samples of an instant vector: each has its labels under `metric`, and `value` with time and value.

        Raises:
            httpx.HTTPError: No answer, or the expression was refused.
        """
        answer = httpx.get(f"{self.url}/api/v1/query", params={"query": expression}, timeout=_CLIENT_SECONDS).raise_for_status()
        found: list[Mapping[str, Any]] = answer.json()["data"]["result"]
        return found

    def find_alerts(self) -> Sequence[Mapping[str, Any]]:
        """Return the alerts that are pending or firing: each has `labels`, `annotations` and `state`."""
        answer = httpx.get(f"{self.url}/api/v1/alerts", timeout=_CLIENT_SECONDS).raise_for_status()
        found: list[Mapping[str, Any]] = answer.json()["data"]["alerts"]
        return found

    def _prepared(self) -> tuple[Sequence[str], Mapping[str, str]]:
        program, data, file = find_prometheus(), self.directory / "data", self.directory / "prometheus.yml"
        file.write_text(json.dumps(self._configuration(), indent=2))  # JSON is YAML.
        options = (
            f"--config.file={file}",
            f"--storage.tsdb.path={data}",
            f"--web.listen-address={LOOPBACK}:{self.ports['prometheus']}",
        )
        return [str(program), *options], os.environ

    def _configuration(self) -> dict[str, Any]:
        settings, interval = self.settings, f"{self.settings.seconds}s"
        return {
            "global": {"scrape_interval": interval, "scrape_timeout": interval, "evaluation_interval": interval},
            "rule_files": [str(each.absolute()) for each in settings.rules],
            "scrape_configs": [{"job_name": settings.job, "static_configs": [{"targets": list(settings.targets)}]}],
        }
