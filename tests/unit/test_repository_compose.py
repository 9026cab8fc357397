"""compose.yaml and the Dockerfile hold together: by the Compose schema, by genflow's commands, by what they name.

The schema is the one that check-jsonschema carries, so that no container engine is needed.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable
from importlib import resources
from typing import Any
from urllib.parse import urlsplit

import jsonschema
import pytest
import typer
import yaml

from genflow.settings import Settings
from tests.support.commands import parse_command
from tests.support.repository import ROOT

Compose = dict[str, Any]


def read_compose() -> Compose:
    """compose.yaml with its anchors resolved."""
    document = yaml.safe_load((ROOT / "compose.yaml").read_text(encoding="utf-8"))
    assert isinstance(document, dict)
    return document


@pytest.fixture
def compose() -> Compose:
    """A copy that a test may spoil."""
    return copy.deepcopy(read_compose())


def schema_errors(document: Compose) -> list[str]:
    """What the Compose schema has against a document."""
    schema = resources.files("check_jsonschema") / "builtin_schemas" / "vendor" / "compose-spec.json"
    validator = jsonschema.Draft202012Validator(json.loads(schema.read_text(encoding="utf-8")))
    return [f"{'.'.join(map(str, error.absolute_path))}: {error.message}" for error in validator.iter_errors(document)]


def genflow_services(document: Compose, command: str | None = None) -> dict[str, Any]:
    """The services of genflow's image, or those among them that run this command."""
    return {
        name: service
        for name, service in document["services"].items()
        if service["image"] == "genflow:local" and command in (None, service["command"][0])
    }


def asked_by_healthcheck(service: Any) -> str:
    """The address that a service's health check asks."""
    found = re.search(r"http://[^']+", service["healthcheck"]["test"][-1])
    assert found
    return found[0]


def test_the_schema_accepts_it(compose: Compose) -> None:
    assert schema_errors(compose) == []


def spoil_key(document: Compose) -> None:
    document["services"]["api"]["imge"] = "genflow:local"


def spoil_type(document: Compose) -> None:
    document["services"]["api"]["ports"] = 8190


def spoil_condition(document: Compose) -> None:
    document["services"]["api"]["depends_on"]["postgres"]["condition"] = "service_is_healthy"


def spoil_healthcheck(document: Compose) -> None:
    document["services"]["sim0"]["healthcheck"]["retry"] = 3


def spoil_volume(document: Compose) -> None:
    document["services"]["worker0"]["volumes"] = {"data": "/data"}


def spoil_top(document: Compose) -> None:
    document["volume"] = {"data": None}


@pytest.mark.parametrize(
    ("spoil", "named"),
    [
        (spoil_key, "imge"),
        (spoil_type, "8190"),
        (spoil_condition, "service_is_healthy"),
        (spoil_healthcheck, "retry"),
        (spoil_volume, "worker0.volumes"),
        (spoil_top, "volume"),
    ],
)
def test_the_schema_refuses_a_planted_error(compose: Compose, spoil: Callable[[Compose], None], named: str) -> None:
    spoil(compose)
    errors = schema_errors(compose)
    assert errors
    assert any(named in error for error in errors), errors


def test_the_parts_are_all_there(compose: Compose) -> None:
    counts = {command: len(genflow_services(compose, command)) for command in ("migrate", "api", "worker", "simulate")}
    assert counts == {"migrate": 1, "api": 1, "worker": 2, "simulate": 2}
    assert compose["services"]["postgres"]["image"].startswith("postgres:")
    reserved = [name for name, service in compose["services"].items() if "gpus" in service or "devices" in service]
    assert reserved == [], "the file must run without a GPU"


def test_genflow_understands_every_command(compose: Compose) -> None:
    for service in genflow_services(compose).values():
        parse_command(service["command"])


@pytest.mark.parametrize(
    "words",
    [["api", "--hots", "0.0.0.0"], ["worker", "--slots", "many"], ["simulate", "--port"]],  # noqa: S104
)
def test_a_planted_flag_is_refused(words: list[str]) -> None:
    with pytest.raises(typer.TyperException):
        parse_command(words)


def test_environment_names_are_settings(compose: Compose) -> None:
    for name, service in genflow_services(compose).items():
        for variable in service.get("environment", {}):
            assert variable.removeprefix("GENFLOW_").lower() in Settings.model_fields, f"{name}: {variable}"


def test_one_database_for_all(compose: Compose) -> None:
    postgres = compose["services"]["postgres"]["environment"]
    services = {name: each for name, each in genflow_services(compose).items() if each["command"][0] != "simulate"}
    (url,) = {service["environment"]["GENFLOW_DATABASE_URL"] for service in services.values()}
    parts = urlsplit(url)
    assert parts.hostname == "postgres"
    assert (parts.username, parts.password) == (postgres["POSTGRES_USER"], postgres["POSTGRES_PASSWORD"])
    assert parts.path == f"/{postgres['POSTGRES_DB']}"
    for name, service in services.items():
        assert service["depends_on"]["postgres"] == {"condition": "service_healthy"}, name
        if service["command"][0] != "migrate":
            assert service["depends_on"]["migrate"] == {"condition": "service_completed_successfully"}, name


def test_one_store_for_api_and_workers(compose: Compose) -> None:
    for name, service in (genflow_services(compose, "api") | genflow_services(compose, "worker")).items():
        mounted = dict(volume.split(":") for volume in service["volumes"])
        assert mounted == {"data": service["environment"]["GENFLOW_DATA"]}, name
    named = {volume.split(":")[0] for service in compose["services"].values() for volume in service.get("volumes", [])}
    assert named == set(compose["volumes"])


def test_workers_reach_both_simulators_and_have_names_of_their_own(compose: Compose) -> None:
    simulators = genflow_services(compose, "simulate")
    listening = {f"http://{name}:{parse_command(each['command'])['port']}" for name, each in simulators.items()}
    instances = set()
    for name, service in genflow_services(compose, "worker").items():
        words = service["command"]
        servers = dict(words[at + 1].split("=", 1) for at, word in enumerate(words) if word == "--gpu")
        assert set(servers.values()) == listening, name
        assert set(servers) == set(simulators), name
        instances.add(words[words.index("--instance") + 1])
        for simulator in simulators:
            assert service["depends_on"][simulator] == {"condition": "service_healthy"}
    assert len(instances) == 2


def test_everything_waited_for_has_a_health_check_that_asks_its_own_port(compose: Compose) -> None:
    ports = {"worker": Settings.model_fields["health_port"].default}
    paths = {"api": "/readyz", "worker": "/healthz", "simulate": "/system_stats"}
    for name, service in genflow_services(compose).items():
        command = service["command"][0]
        if command == "migrate":
            continue
        asked = urlsplit(asked_by_healthcheck(service))
        assert asked.hostname == "127.0.0.1"
        assert asked.port == (ports.get(command) or parse_command(service["command"])["port"]), name
        assert asked.path == paths[command], name
    for name, service in compose["services"].items():
        for needed, how in service.get("depends_on", {}).items():
            assert how["condition"] != "service_healthy" or "healthcheck" in compose["services"][needed], name


def test_an_api_without_keys_is_published_on_loopback_only(compose: Compose) -> None:
    (service,) = genflow_services(compose, "api").values()
    assert "--insecure" in service["command"]
    port = parse_command(service["command"])["port"]
    assert service["ports"] == [f"127.0.0.1:{port}:{port}"]
    published = [name for name, each in compose["services"].items() if "ports" in each]
    assert published == ["api"]


def test_workers_get_more_time_than_their_grace(compose: Compose) -> None:
    grace_s = Settings.model_fields["grace_s"].default
    for service in genflow_services(compose, "worker").values():
        assert int(service["stop_grace_period"].removesuffix("s")) >= grace_s + 10


def dockerfile() -> list[list[str]]:
    """The Dockerfile's instructions, continued lines joined."""
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8").replace("\\\n", " ")
    return [line.split(maxsplit=1) for line in text.splitlines() if line and not line.startswith("#")]


def test_the_image_copies_what_the_context_holds() -> None:
    allowed = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    copied = {
        source
        for instruction, rest in dockerfile()
        if instruction == "COPY" and "--from=" not in rest
        for source in rest.split()[:-1]
    }
    assert copied == allowed
    assert [source for source in sorted(copied) if not (ROOT / source).exists()] == []


def test_the_image_runs_genflow_as_an_ordinary_user() -> None:
    last = {instruction: rest for instruction, rest in dockerfile()}
    assert last["USER"] not in ("root", "0")
    assert json.loads(last["ENTRYPOINT"]) == ["genflow"]
    parse_command(json.loads(last["CMD"]))
    variables = re.findall(r"GENFLOW_(\w+)=", last["ENV"])
    assert [name for name in variables if name.lower() not in Settings.model_fields] == []
    installs = [rest for instruction, rest in dockerfile() if instruction == "RUN" and "pip install" in rest]
    assert [each for each in installs if "--require-hashes" not in each and "--no-deps" not in each] == []
