"""The files in `deploy/` start the program correctly: its own parser accepts their commands."""

import argparse
import ast
import json
import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from weft.cli.commands import build_parser
from weft.cli.serve_access import choose_auth

DEPLOY = Path(__file__).parents[2] / "deploy"
UNIT = DEPLOY / "weft.service"
CONTAINER = DEPLOY / "Containerfile"


def parse(arguments: list[str]) -> argparse.Namespace:
    return build_parser(arguments).parse_args(arguments)


def get_unit_command() -> list[str]:
    (line,) = re.findall(r"^ExecStart=(.+)$", UNIT.read_text(), re.MULTILINE)
    return shlex.split(line)


def get_container_words(instruction: str) -> list[str]:
    (line,) = re.findall(rf"^{instruction} (\[.+\])$", CONTAINER.read_text(), re.MULTILINE)
    words: list[str] = json.loads(line)
    return words


def test_the_unit_starts_a_server_for_this_machine_alone() -> None:
    program, *arguments = get_unit_command()
    assert Path(program).name == "weft"
    chosen = parse(arguments)
    assert (chosen.hostname, choose_auth(chosen.auth, {}), chosen.allow_dir) == (
        "127.0.0.1",
        "password",
        ["/srv/weft"],
    )


def test_the_unit_waits_longer_than_the_server_needs_to_stop() -> None:
    chosen = parse(get_unit_command()[1:])
    (seconds,) = re.findall(r"^TimeoutStopSec=(\d+)$", UNIT.read_text(), re.MULTILINE)
    assert int(seconds) > chosen.grace + 20


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd here")
def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    unit = tmp_path / "weft.service"
    # What it starts is not installed here.
    unit.write_text(UNIT.read_text().replace(get_unit_command()[0], "/bin/true"))
    checked = subprocess.run(
        ["systemd-analyze", "verify", str(unit)], capture_output=True, text=True, check=False, timeout=60
    )
    assert (checked.returncode, checked.stderr) == (0, "")


def test_no_proxy_buffers_events_or_keeps_closed_listeners() -> None:
    nginx, caddy = (
        re.search(rf"```{name}\n(.+?)```", (DEPLOY / "README.md").read_text(), re.DOTALL)
        for name in ("nginx", "caddyfile")
    )
    assert nginx is not None
    assert caddy is not None
    for said in (
        "proxy_buffering off;",
        "client_max_body_size 0;",
        "proxy_set_header Upgrade $http_upgrade;",
        "proxy_set_header Host $http_host;",
        "proxy_read_timeout 1h;",
        "gzip off;",
    ):
        assert said in nginx[1]
        assert said in (DEPLOY / "nginx-cluster.conf").read_text()
    # Caddy 2.6 then never tells us that a listener has hung up.
    assert "flush_interval" not in caddy[1]


def test_the_container_starts_a_server_with_a_password() -> None:
    assert get_container_words("ENTRYPOINT") == ["weft"]
    chosen = parse(get_container_words("CMD"))
    assert (chosen.hostname, chosen.port, choose_auth(chosen.auth, {})) == ("0.0.0.0", 4096, "password")
    assert f"EXPOSE {chosen.port}" in CONTAINER.read_text()


def test_the_health_check_of_the_container_uses_the_address_of_the_server() -> None:
    python, flag, program = get_container_words("HEALTHCHECK .* CMD")
    assert (python, flag) == ("python", "-c")
    ast.parse(program)
    port = parse(get_container_words("CMD")).port
    assert f"http://127.0.0.1:{port}/weft/ready" in program


def test_the_container_has_the_driver_of_the_shared_store() -> None:
    stores = [
        name for name in ("compose.yaml", "kubernetes.yaml") if "postgres://" in (DEPLOY / name).read_text()
    ]
    assert stores == ["compose.yaml", "kubernetes.yaml"]
    (installed,) = re.findall(r"pip install .+ '(\S+)'$", CONTAINER.read_text(), re.MULTILINE)
    assert installed == ".[postgres]"


def load_compose() -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    return loaded


def load_kubernetes(kind: str) -> dict[str, Any]:
    documents = yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text())
    (found,) = (each for each in documents if each["kind"] == kind)
    return dict(found["spec"])


def test_the_nodes_of_the_compose_file_are_those_of_nginx() -> None:
    services = load_compose()["services"]
    nodes = {name: service for name, service in services.items() if service["image"] == "weft"}
    for node in nodes.values():
        chosen = parse(node["command"])
        assert (chosen.hostname, chosen.port, choose_auth(chosen.auth, {})) == ("0.0.0.0", 4096, "password")
        assert int(node["stop_grace_period"].removesuffix("s")) > chosen.grace + 20
    nginx = services["nginx"]
    assert sorted(nginx["depends_on"]) == sorted(nodes)
    (mounted,) = nginx["volumes"]
    site = (DEPLOY / mounted.partition(":")[0]).read_text()
    assert re.findall(r"^    server (\S+) ", site, re.MULTILINE) == [f"{name}:4096" for name in nodes]
    (published,) = nginx["ports"]
    assert f"listen {published.rpartition(':')[2]};" in site


def test_the_pods_of_kubernetes_are_nodes() -> None:
    pod = load_kubernetes("StatefulSet")["template"]["spec"]
    (container,) = pod["containers"]
    chosen = parse(container["args"])
    assert (chosen.hostname, choose_auth(chosen.auth, {})) == ("0.0.0.0", "password")
    # Pods and people in the cluster use the name of the service.
    assert chosen.allow_host == ["weft"]
    assert pod["terminationGracePeriodSeconds"] > chosen.grace + 20
    assert container["ports"] == [{"name": "http", "containerPort": chosen.port}]
    assert load_kubernetes("Service")["ports"] == [{"port": chosen.port, "targetPort": "http"}]
    ready = container["readinessProbe"]
    program = ready["exec"]["command"][-1]
    ast.parse(program)
    assert f"http://127.0.0.1:{chosen.port}/weft/ready" in program
    assert "timeout=4" in program
    assert ready["timeoutSeconds"] > 4


def test_nodes_keep_their_snapshots() -> None:
    compose = load_compose()
    volumes = [compose["services"][node]["volumes"] for node in ("one", "two")]
    kept = [volume.partition(":")[0] for each in volumes for volume in each if volume.endswith(":/data")]
    assert kept == ["data-one", "data-two"]
    assert set(kept) <= set(compose["volumes"])
    nodes = load_kubernetes("StatefulSet")
    assert [claim["metadata"]["name"] for claim in nodes["volumeClaimTemplates"]] == ["data"]
    mounts = nodes["template"]["spec"]["containers"][0]["volumeMounts"]
    assert {"name": "data", "mountPath": "/data"} in mounts


def test_the_files_that_the_container_copies_exist() -> None:
    copied = re.findall(r"^COPY (?!--)(.+) \S+$", CONTAINER.read_text(), re.MULTILINE)
    names = " ".join(copied).split()
    assert "src" in names
    assert [name for name in names if not (DEPLOY.parent / name).exists()] == []
