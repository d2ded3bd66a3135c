"""A Prometheus server."""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import httpx

from servers.ports import LOOPBACK
from servers.prometheus.program import find_prometheus
from servers.server import Server

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
