"""The package: built, installed into an empty environment, and run there."""

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
import venv
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from sbom import build_bill, find_unlicensed
from weft.version import VERSION

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = set(PROJECT["optional-dependencies"])
FOR_DEVELOPERS = {"dev", "docs"}
UNREACHABLE = re.compile(r"No matching distribution|Could not fetch|connection|resolution", re.IGNORECASE)


def run(*command: str | Path, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(each) for each in command],
        cwd=ROOT,
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )


def install(python: Path, *what: str) -> None:
    """Install with pip. Skip the test if there is no package index here; in CI there has to be one."""
    done = run(python, "-m", "pip", "install", "-q", "--disable-pip-version-check", *what)
    if done.returncode != 0 and "CI" not in os.environ and UNREACHABLE.search(done.stderr):
        pytest.skip("no package index can be reached")
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
@pytest.mark.timeout(600)  # pip resolves and downloads everything
def test_the_package_is_built_installed_alone_and_run(tmp_path: Path) -> None:
    built = run(sys.executable, "-m", "build", "--no-isolation", "--outdir", tmp_path / "dist")
    assert built.returncode == 0, built.stderr
    wheel = tmp_path / "dist" / f"weft-{VERSION}-py3-none-any.whl"
    assert {path.name for path in (tmp_path / "dist").iterdir()} == {wheel.name, f"weft-{VERSION}.tar.gz"}

    venv.create(tmp_path / "venv", with_pip=True)
    python = tmp_path / "venv" / "bin" / "python"
    install(python, str(wheel))

    weft = tmp_path / "venv" / "bin" / "weft"
    assert run(weft, "--version").stdout == f"{VERSION}\n"
    demo = run(weft, "demo", TMPDIR=str(tmp_path))
    assert demo.returncode == 0, demo.stderr
    assert "Hello, weft!" in demo.stdout
    install(python, "--dry-run", f"{wheel}[{','.join(sorted(EXTRAS - {'dev'}))}]")


@pytest.mark.slow
def test_the_wheel_of_a_commit_is_reproducible(tmp_path: Path) -> None:
    [recipe] = re.findall(r"^dist: .*\n\t(.+)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    recipe = recipe.replace("$$(git log -1 --format=%ct)", "1750000000").replace("$(RUN)/python", '"$0"')

    def build_copy(name: str, umask: str) -> str:
        copy = tmp_path / name
        copy.mkdir()
        shutil.copytree(
            ROOT / "src", copy / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info")
        )
        for file in ("pyproject.toml", "README.md", "LICENSE"):
            shutil.copy(ROOT / file, copy)
        for path in copy.rglob("*.py"):
            os.utime(path, (tmp_path.stat().st_mtime + len(name),) * 2)  # every checkout has other times
        built = run("sh", "-c", f'umask {umask}; cd "$1"; {recipe} --wheel', sys.executable, copy)
        assert built.returncode == 0, built.stderr
        (wheel,) = (copy / "dist").iterdir()
        return hashlib.sha256(wheel.read_bytes()).hexdigest()

    assert build_copy("first", "022") == build_copy("second", "077")


def test_the_bill_of_materials_names_every_part_with_its_licence() -> None:
    bill = build_bill(PROJECT)
    assert find_unlicensed(bill) == []
    named = {each["name"] for each in bill["components"]}
    used = [PROJECT["optional-dependencies"][extra] for extra in EXTRAS - FOR_DEVELOPERS]
    lines = [*PROJECT["dependencies"], *(line for extra in used for line in extra)]
    assert {canonicalize_name(Requirement(line).name) for line in lines} <= named
    assert "htm" in named
    assert {each["ref"] for each in bill["dependencies"]} <= {"weft", *named}


def test_the_bill_of_materials_names_every_extra_and_what_is_not_installed() -> None:
    optional = {**PROJECT["optional-dependencies"], "loom": ["Weft_Loom[warp]>=3,<4"]}
    bill = build_bill({**PROJECT, "optional-dependencies": optional})
    listed = {each["name"]: each["value"] for each in bill["metadata"]["component"]["properties"]}
    assert set(listed) == {f"weft:extra:{extra}" for extra in optional}
    assert listed["weft:extra:langgraph"] == optional["langgraph"][0]
    assert [each for each in bill["components"] if each["name"] == "weft-loom"] == [
        {
            "type": "library",
            "bom-ref": "weft-loom",
            "name": "weft-loom",
            "purl": "pkg:pypi/weft-loom",
            "properties": [{"name": "weft:requires", "value": "<4,>=3"}],
        }
    ]
    assert {"ref": "weft-loom", "dependsOn": []} in bill["dependencies"]
    assert "://" not in json.dumps(bill)


def test_the_version_is_defined_in_one_place() -> None:
    assert "version" in PROJECT["dynamic"]
    assert "version" not in PROJECT


def test_exactly_the_existing_extras_are_named_in_code_and_documents() -> None:
    code = [path.read_text() for path in (ROOT / "src").rglob("*.py")]
    pages = [path.read_text() for path in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]]
    extra = re.compile(r"(?:weft\[|'\.\[|weft's extra )([a-z-]+)")
    assert {name for text in code for name in extra.findall(text)} == EXTRAS - FOR_DEVELOPERS
    assert {name for text in pages for name in extra.findall(text)} == EXTRAS - FOR_DEVELOPERS
