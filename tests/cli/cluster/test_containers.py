"""The Containerfile's order, and the Kubernetes manifest against the API's own models."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from ottla.model.settings.broker import FAILURE_DOMAIN_HOST, load_broker_config
from ottla.model.settings.controller import load_controller_config
from ottla.node.properties import parse_properties

ROOT = Path(__file__).parents[3]
DEPLOY = ROOT / "deploy"
CONTAINERS = DEPLOY / "containers"
MANIFEST: list[dict[str, Any]] = list(
    yaml.safe_load_all((DEPLOY / "kubernetes" / "ottla.yaml").read_text())
)
MODELS = {
    "ConfigMap": "V1ConfigMap",
    "Service": "V1Service",
    "PodDisruptionBudget": "V1PodDisruptionBudget",
    "StatefulSet": "V1StatefulSet",
}


def of_kind(kind: str) -> dict[str, dict[str, Any]]:
    return {one["metadata"]["name"]: one for one in MANIFEST if one["kind"] == kind}


def instructions() -> list[tuple[str, str]]:
    text = re.sub(r"\\\n", " ", (CONTAINERS / "Containerfile").read_text())
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return [(line.split()[0], line.partition(" ")[2]) for line in lines]


def test_dependencies_are_a_layer_before_the_source() -> None:
    found = [f"{name} {value}" for name, value in instructions()]
    installed = next(i for i, one in enumerate(found) if "-r /dependencies/requirements" in one)
    copied = found.index("COPY . /source")
    assert found.index("COPY pyproject.toml /dependencies/") < installed < copied


def test_an_image_has_a_health_check_and_runs_without_root() -> None:
    found = dict(instructions())
    assert found["HEALTHCHECK"].endswith('CMD ["healthy"]')
    assert found["USER"] == "ottla"
    assert os.access(CONTAINERS / "healthy", os.X_OK)


def test_what_is_copied_is_not_ignored() -> None:
    ignored = (CONTAINERS / "Containerfile.dockerignore").read_text().splitlines()
    for name, value in instructions():
        if name == "COPY" and not value.startswith("--from"):
            for source in value.split()[:-1]:
                top = source.split("/")[0]
                assert source == "." or top not in ignored or f"!{source}" in ignored, source
    assert {".git", ".venv", "ottla-data", "tests"} <= set(ignored)
    # BuildKit reads the file beside the Containerfile, other builders the one of the context.
    assert (ROOT / ".dockerignore").read_text().splitlines() == ignored


def problems_of(model: str, value: Any, where: str) -> list[str]:
    """Return the unknown keys and refused values of an object by a model of the Kubernetes API."""
    client = pytest.importorskip("kubernetes.client", reason="LOUD: manifest is NOT checked")
    if model.startswith("list["):
        assert isinstance(value, list), where
        inner = model[5:-1]
        return [one for item in value for one in problems_of(inner, item, where)]
    kind = getattr(client, model, None)
    if kind is None:
        return []  # a map, a text, a number
    names = {json_name: name for name, json_name in kind.attribute_map.items()}
    found = [f"{where}.{key} is unknown to {model}" for key in value if key not in names]
    known = {names[key]: one for key, one in value.items() if key in names}
    try:
        kind(**known)
    except (ValueError, TypeError) as error:
        found.append(f"{where}: {error}")
    for name, one in known.items():
        found += problems_of(kind.openapi_types[name], one, f"{where}.{name}")
    return found


@pytest.mark.parametrize("document", MANIFEST, ids=lambda one: f"{one['kind']}-{len(str(one))}")
def test_a_document_is_what_kubernetes_knows(document: dict[str, Any]) -> None:
    assert problems_of(MODELS[document["kind"]], document, document["kind"]) == []


def test_a_key_that_kubernetes_does_not_know_is_found() -> None:
    wrong = {"spec": {"serviceNam": "x"}}
    assert any("serviceNam" in one for one in problems_of("V1StatefulSet", wrong, "StatefulSet"))


def test_sets_services_budgets_and_labels_belong_together() -> None:
    services, budgets = of_kind("Service"), of_kind("PodDisruptionBudget")
    for name, one in of_kind("StatefulSet").items():
        labels = one["spec"]["template"]["metadata"]["labels"]
        assert one["spec"]["selector"]["matchLabels"] == labels
        headless = services[one["spec"]["serviceName"]]["spec"]
        assert (headless["clusterIP"], headless["selector"]) == ("None", labels)
        assert budgets[name]["spec"]["selector"]["matchLabels"] == labels
        for container in one["spec"]["template"]["spec"]["containers"]:
            ports = {port["name"] for port in container["ports"]}
            for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
                asked = container[probe].get("tcpSocket") or container[probe]["httpGet"]
                assert asked["port"] in ports


def settings_of(role: str) -> str:
    return str(of_kind("ConfigMap")["ottla-settings"]["data"][f"{role}.properties"])


def test_every_setting_of_the_manifest_is_known() -> None:
    broker = parse_properties(settings_of("broker"))
    assert load_broker_config({"node.id": "0", **broker})[1] == set()
    controller = parse_properties(settings_of("controller"))
    assert load_controller_config({"node.id": "100", **controller})[1] == set()


@pytest.mark.parametrize(
    ("role", "number", "node_id"), [("broker", 2, "2"), ("controller", 1, "101")]
)
def test_the_command_of_a_pod_gives_the_node_its_number(
    role: str, number: int, node_id: str, tmp_path: Path
) -> None:
    """Run the pod's own command, with a double of `ottla` that prints its arguments."""
    (tmp_path / "ottla").write_text(
        f"#!{sys.executable}\nimport json, sys\nprint(json.dumps(sys.argv[1:]))\n"
    )
    (tmp_path / "ottla").chmod(0o755)
    pod = of_kind("StatefulSet")[f"ottla-{role}"]["spec"]["template"]["spec"]["containers"][0]
    done = subprocess.run(
        [*pod["command"], *pod["args"]],
        env={
            "PATH": f"{tmp_path}:{os.environ['PATH']}",
            "HOSTNAME": f"ottla-{role}-{number}",
            "NODE_NAME": "worker-7",
        },
        capture_output=True,
        text=True,
        check=True,
    )
    called = json.loads(done.stdout)
    assert called[:3] == [role, f"/etc/ottla/{role}.properties", f"--set=node.id={node_id}"]
    if role == "broker":
        assert called[3] == (
            "--set=advertised.listeners=PLAINTEXT://ottla-broker-2.ottla-broker:9092"
        )
        assert called[4] == f"--set={FAILURE_DOMAIN_HOST}=worker-7"


def test_pods_and_containers_name_the_machine_of_their_broker() -> None:
    """A container has no machine id, or the one of its image."""
    pod = of_kind("StatefulSet")["ottla-broker"]["spec"]["template"]["spec"]["containers"][0]
    (name,) = pod["env"]
    assert name["valueFrom"]["fieldRef"]["fieldPath"] == "spec.nodeName"
    composed = yaml.safe_load((CONTAINERS / "compose.yaml").read_text())["services"]
    brokers = [one["command"] for name, one in composed.items() if name.startswith("broker-")]
    assert len(brokers) == 3
    for command in brokers:
        assert f"--set={FAILURE_DOMAIN_HOST}=${{MACHINE:-machine-1}}" in command


def test_a_first_start_formats_a_controller_and_no_later_one(tmp_path: Path) -> None:
    """Run the very command of the init container, with its directories moved here."""
    pod = of_kind("StatefulSet")["ottla-controller"]["spec"]["template"]["spec"]
    command = pod["initContainers"][0]["args"][0]
    for place in ("/var/lib/ottla", "/etc/ottla", "/tmp/controller"):
        command = command.replace(place, f"{tmp_path}{place}")
    for place in ("var/lib/ottla", "etc/ottla", "tmp"):
        (tmp_path / place).mkdir(parents=True)
    settings = settings_of("controller").replace("/var/lib", f"{tmp_path}/var/lib")
    (tmp_path / "etc/ottla/controller.properties").write_text(settings)
    (tmp_path / "ottla").write_text(f'#!/bin/sh\nexec {sys.executable} -m ottla.cli "$@"\n')
    (tmp_path / "ottla").chmod(0o755)
    ids = ["AAAAAAAAAAAAAAAAAAAAAQ", "AAAAAAAAAAAAAAAAAAAAAg", "AAAAAAAAAAAAAAAAAAAAAw"]
    names = [f"ottla-controller-{i}.ottla-controller" for i in range(3)]
    voters = ",".join(f"{100 + i}@{names[i]}:9093:{id_}" for i, id_ in enumerate(ids))
    formatted = tmp_path / "var/lib/ottla/metadata/meta.properties"
    for first_start in ("no", "yes", "yes"):
        subprocess.run(
            ["/bin/sh", "-ec", command],
            env={
                "PATH": f"{tmp_path}:{os.environ['PATH']}",
                "HOSTNAME": "ottla-controller-1",
                "FIRST_START": first_start,
                "CLUSTER_ID": "AAAAAAAAAAAAAAAAAAAABA",
                "CONTROLLERS": voters,
            },
            check=True,
        )
        assert formatted.exists() == (first_start == "yes")
        if first_start == "yes":
            voters = ""  # a second format would be refused
    assert "node.id=101" in formatted.read_text()
