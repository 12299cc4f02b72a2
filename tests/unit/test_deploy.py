"""The files in `deploy/` start the program correctly: its own parser accepts their commands."""

import argparse
import ast
import json
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from weft.cli.commands import build_parser
from weft.cli.serve_access import choose_auth

DEPLOY = Path(__file__).parents[2] / "deploy"
UNIT = DEPLOY / "weft.service"
CONTAINER = DEPLOY / "Containerfile"


def parsed(arguments: list[str]) -> argparse.Namespace:
    return build_parser(arguments).parse_args(arguments)


def started_by_unit() -> list[str]:
    (line,) = re.findall(r"^ExecStart=(.+)$", UNIT.read_text(), re.MULTILINE)
    return shlex.split(line)


def words_of(instruction: str) -> list[str]:
    (line,) = re.findall(rf"^{instruction} (\[.+\])$", CONTAINER.read_text(), re.MULTILINE)
    words: list[str] = json.loads(line)
    return words


def test_the_unit_starts_a_server_for_this_machine_alone() -> None:
    program, *arguments = started_by_unit()
    assert Path(program).name == "weft"
    chosen = parsed(arguments)
    assert (chosen.hostname, choose_auth(chosen.auth, {}), chosen.allow_dir) == (
        "127.0.0.1",
        "password",
        ["/srv/weft"],
    )


def test_the_unit_waits_longer_than_the_server_takes_to_end() -> None:
    chosen = parsed(started_by_unit()[1:])
    (seconds,) = re.findall(r"^TimeoutStopSec=(\d+)$", UNIT.read_text(), re.MULTILINE)
    assert int(seconds) > chosen.grace + 20


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd here")
def test_systemd_finds_nothing_wrong_with_the_unit(tmp_path: Path) -> None:
    unit = tmp_path / "weft.service"
    # What it starts is not installed here.
    unit.write_text(UNIT.read_text().replace(started_by_unit()[0], "/bin/true"))
    checked = subprocess.run(
        ["systemd-analyze", "verify", str(unit)], capture_output=True, text=True, check=False, timeout=60
    )
    assert (checked.returncode, checked.stderr) == (0, "")


def test_no_proxy_holds_events_back_or_keeps_listeners_that_are_gone() -> None:
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
    ):
        assert said in nginx[1]
    # Caddy 2.6 then never tells us that a listener has hung up.
    assert "flush_interval" not in caddy[1]


def test_the_container_starts_a_server_that_asks_for_a_password() -> None:
    assert words_of("ENTRYPOINT") == ["weft"]
    chosen = parsed(words_of("CMD"))
    assert (chosen.hostname, chosen.port, choose_auth(chosen.auth, {})) == ("0.0.0.0", 4096, "password")
    assert f"EXPOSE {chosen.port}" in CONTAINER.read_text()


def test_the_container_looks_after_its_health_where_the_server_is() -> None:
    python, flag, program = words_of("HEALTHCHECK .* CMD")
    assert (python, flag) == ("python", "-c")
    ast.parse(program)
    port = parsed(words_of("CMD")).port
    assert f"http://127.0.0.1:{port}/weft/ready" in program


def test_the_container_has_the_driver_of_the_store_that_its_nodes_use() -> None:
    stores = [
        name for name in ("compose.yaml", "kubernetes.yaml") if "postgres://" in (DEPLOY / name).read_text()
    ]
    assert stores == ["compose.yaml", "kubernetes.yaml"]
    (installed,) = re.findall(r"pip install .+ '(\S+)'$", CONTAINER.read_text(), re.MULTILINE)
    assert installed == ".[postgres]"


@pytest.mark.parametrize("name", ["compose.yaml", "kubernetes.yaml"])
def test_nodes_keep_their_snapshots(name: str) -> None:
    documents = list(yaml.safe_load_all((DEPLOY / name).read_text()))
    if name == "compose.yaml":
        (compose,) = documents
        volumes = [compose["services"][node]["volumes"] for node in ("one", "two")]
        kept = [volume.partition(":")[0] for each in volumes for volume in each if volume.endswith(":/data")]
        assert kept == ["data-one", "data-two"]
        assert set(kept) <= set(compose["volumes"])
    else:
        (nodes,) = (each["spec"] for each in documents if each["kind"] == "StatefulSet")
        assert [claim["metadata"]["name"] for claim in nodes["volumeClaimTemplates"]] == ["data"]
        mounts = nodes["template"]["spec"]["containers"][0]["volumeMounts"]
        assert {"name": "data", "mountPath": "/data"} in mounts


def test_what_the_container_copies_is_there() -> None:
    copied = re.findall(r"^COPY (?!--)(.+) \S+$", CONTAINER.read_text(), re.MULTILINE)
    for name in " ".join(copied).split():
        assert (DEPLOY.parent / name).exists(), name
