"""The manifests in deploy/kubernetes: valid for Kubernetes, and in agreement with configuration, code and container."""

from __future__ import annotations

import re
import shlex
from pathlib import Path, PurePosixPath
from typing import Any

import kubernetes_validate
import pytest
import yaml

from notification_service.command_line import parse
from notification_service.configuration.configuration import Configuration, load
from notification_service.configuration.transports import kafka_settings
from notification_service.status.report import State
from notification_service.supervision.probes import Health, _answer
from notification_service.supervision.supervisor import _DRAIN_SECONDS

DIRECTORY = Path("deploy/kubernetes")
FILES = sorted(DIRECTORY.glob("*.yaml"))
OTHER_SCHEMAS = {"Kustomization", "ServiceMonitor"}
"""Kinds that Kubernetes itself does not know."""
VERSION = "1.30"
SIZES = {"Mi": 2**20, "Gi": 2**30}


def read(kind: str) -> dict[str, Any]:
    (found,) = [each for each in map(parsed, FILES) if each["kind"] == kind]
    return found


def parsed(file: Path) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(file.read_text(encoding="utf-8"))
    return found


@pytest.fixture
def pod() -> dict[str, Any]:
    found: dict[str, Any] = read("StatefulSet")["spec"]["template"]["spec"]
    return found


@pytest.fixture
def container(pod: dict[str, Any]) -> dict[str, Any]:
    (found,) = pod["containers"]
    return dict(found)


@pytest.fixture
def configuration(tmp_path: Path, container: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> Configuration:
    """The ConfigMap's, with the variables that the container has and no others of their kind."""
    (name, content), *more = read("ConfigMap")["data"].items()
    assert more == []
    (tmp_path / name).write_text(content, encoding="utf-8")
    for each in container["env"]:
        monkeypatch.setenv(each["name"], f"value-of-{each['name']}")
    return load(tmp_path / name)


@pytest.mark.slow
@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_manifest_is_what_kubernetes_accepts(file: Path) -> None:
    manifest = parsed(file)
    if manifest["kind"] not in OTHER_SCHEMAS:
        kubernetes_validate.validate(manifest, VERSION, strict=True)


def test_kustomize_takes_all_of_them_but_the_operators_one() -> None:
    assert {*read("Kustomization")["resources"], "kustomization.yaml", "monitor.yaml"} == {each.name for each in FILES}


def test_the_configuration_is_valid_without_a_warning_and_takes_its_passwords_from_the_environment(
    configuration: Configuration, container: dict[str, Any]
) -> None:
    assert configuration.warnings == ()
    content = read("ConfigMap")["data"]["resequencer.conf"]
    variables = {each["name"]: each["valueFrom"] for each in container["env"]}
    assert set(variables) == {each.partition("}")[0] for each in content.split("${")[1:]}
    assert {name for name, source in variables.items() if "secretKeyRef" in source} == {"KAFKA_PASSWORD", "REDIS_PASSWORD"}


def test_the_container_supervises_with_the_mounted_configuration(container: dict[str, Any]) -> None:
    arguments = parse(container["args"])
    mounts = {each["name"]: PurePosixPath(each["mountPath"]) for each in container["volumeMounts"]}
    assert (arguments.command, arguments.log_to_stderr) == ("supervise", True)
    assert PurePosixPath(arguments.config) == mounts["configuration"] / next(iter(read("ConfigMap")["data"]))


def test_each_file_that_the_configuration_names_lies_in_a_mounted_volume(
    configuration: Configuration, container: dict[str, Any], pod: dict[str, Any]
) -> None:
    mounts = {PurePosixPath(each["mountPath"]): each["name"] for each in container["volumeMounts"]}
    http = configuration.http
    named = [http.users_file, http.tls.certificate_file, http.tls.key_file]
    assert [mounts[PurePosixPath(str(each)).parent] for each in named] == ["console", "console-tls", "console-tls"]
    content = read("ConfigMap")["data"]["resequencer.conf"]
    assert content.count('"/etc/resequencer/certificates/') == 2
    assert mounts[PurePosixPath("/etc/resequencer/certificates")] == "certificates"
    assert mounts[PurePosixPath(str(configuration.notification.run_directory))] == "run"
    claimed = {each["metadata"]["name"] for each in read("StatefulSet")["spec"]["volumeClaimTemplates"]}
    assert set(mounts.values()) == claimed | {each["name"] for each in pod["volumes"]}


def test_ports_and_addresses_are_those_of_the_configuration(configuration: Configuration, container: dict[str, Any]) -> None:
    http = configuration.http
    listeners = {"console": http, "probes": http.probes, "metrics": http.metrics}
    ports = {each["name"]: each["containerPort"] for each in container["ports"]}
    assert ports == {name: each.port for name, each in listeners.items()}
    assert {each.host for each in listeners.values()} == {"0.0.0.0"}
    assert all(each.is_port_chosen for each in listeners.values())
    service = {each["name"]: (each["port"], each["targetPort"]) for each in read("Service")["spec"]["ports"]}
    assert service == {name: (ports[name], name) for name in ("console", "metrics")}
    allowed = {port["port"] for rule in read("NetworkPolicy")["spec"]["ingress"] for port in rule["ports"]}
    assert allowed == set(service)


def test_the_console_asks_for_a_login_and_speaks_tls(configuration: Configuration) -> None:
    assert configuration.http.auth == "basic"
    assert configuration.http.tls.certificate_file is not None


def test_the_probes_ask_what_the_supervisor_answers(container: dict[str, Any]) -> None:
    def answered(probe: str, state: State) -> int:
        asked = container[probe]["httpGet"]
        assert asked["port"] == "probes"
        return int(_answer(f"GET {asked['path']} HTTP/1.1\r\n\r\n".encode(), lambda: Health(state, ())).split()[1])

    states = State.READY, State.STORAGE_UNAVAILABLE
    assert [answered("readinessProbe", state) for state in states] == [200, 503]
    assert [answered("livenessProbe", state) for state in states] == [200, 200]
    assert [answered("startupProbe", state) for state in states] == [200, 200]


def test_prometheus_is_told_where_the_metrics_are(configuration: Configuration) -> None:
    annotations = read("StatefulSet")["spec"]["template"]["metadata"]["annotations"]
    assert annotations["prometheus.io/port"] == str(configuration.http.metrics.port)
    (endpoint,) = read("ServiceMonitor")["spec"]["endpoints"]
    assert annotations["prometheus.io/path"] == endpoint["path"] == "/metrics"
    assert endpoint["port"] in {each["name"] for each in read("Service")["spec"]["ports"]}


def test_every_selector_selects_the_pods() -> None:
    workload, expected = read("StatefulSet"), {"app.kubernetes.io/name": "resequencer"}
    assert workload["spec"]["template"]["metadata"]["labels"] == expected
    assert read("Service")["metadata"]["labels"] == expected == read("Service")["spec"]["selector"]
    assert read("NetworkPolicy")["spec"]["podSelector"] == {"matchLabels": expected}
    for kind in ("StatefulSet", "PodDisruptionBudget", "ServiceMonitor"):
        assert read(kind)["spec"]["selector"] == {"matchLabels": expected}
    assert workload["spec"]["serviceName"] == read("Service")["metadata"]["name"]


def test_there_is_time_to_drain_and_to_end(pod: dict[str, Any]) -> None:
    assert pod["terminationGracePeriodSeconds"] >= _DRAIN_SECONDS + 10


def test_the_container_has_no_rights_and_writes_only_into_volumes(container: dict[str, Any], pod: dict[str, Any]) -> None:
    image = Path("deploy/Containerfile").read_text(encoding="utf-8")
    assert f"USER {pod['securityContext']['runAsUser']}\n" in image
    assert pod["securityContext"]["runAsNonRoot"]
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    expected = {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}}
    assert container["securityContext"] == expected
    assert {each["name"] for each in container["volumeMounts"] if not each.get("readOnly")} == {"run", "tmp"}
    assert not pod["automountServiceAccountToken"]


def test_the_memory_is_enough_for_full_stashes_in_all_workers(configuration: Configuration, container: dict[str, Any]) -> None:
    limit = container["resources"]["limits"]["memory"]
    stashes = configuration.worker_count * configuration.resequencer.stash_limit_bytes_per_worker
    processes = (configuration.worker_count + 2) * 128 * SIZES["Mi"]
    assert int(limit[:-2]) * SIZES[limit[-2:]] >= stashes + processes


def test_a_pods_name_is_the_workers_group_instance(configuration: Configuration) -> None:
    assert kafka_settings(configuration, 0).consumer["group_instance_id"] == "value-of-POD_NAME-0"


def test_the_page_makes_each_secret_with_the_keys_that_the_pod_takes(
    configuration: Configuration, container: dict[str, Any], pod: dict[str, Any]
) -> None:
    section = Path("docs/operations.md").read_text(encoding="utf-8").partition("\n## In Kubernetes\n")[2].partition("\n## ")[0]
    commands = [shlex.split(line) for line in section.partition("```\n")[2].partition("```")[0].splitlines()]
    secrets = {command[4]: command[5:] for command in commands if command[:3] == ["kubectl", "create", "secret"]}
    volumes = {each["secret"]["secretName"] for each in pod["volumes"] if "secret" in each}
    variables = [each["valueFrom"]["secretKeyRef"] for each in container["env"] if "secretKeyRef" in each["valueFrom"]]
    assert secrets.keys() == volumes | {each["name"] for each in variables}
    assert re.findall(r"--from-literal=([a-z-]+)=", " ".join(secrets["resequencer"])) == [each["key"] for each in variables]
    named = re.findall(r"/certificates/([a-z.]+)", read("ConfigMap")["data"]["resequencer.conf"])
    assert secrets["resequencer-certificates"] == [f"--from-file={each}" for each in named]
    assert secrets["resequencer-console"] == [f"--from-file={configuration.http.users_file.name}"]
    (add_user,) = [command[1:] for command in commands if command[0] == "resequencer"]
    arguments = parse(add_user)
    made = load(overrides=arguments.overrides)
    assert (arguments.subcommand, made.http.users_file) == ("add-user", Path(configuration.http.users_file.name))
