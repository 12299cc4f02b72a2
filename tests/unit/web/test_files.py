"""The files of the page: every file that they name exists, and those of other projects match their manifest."""

import re
from pathlib import Path

import pytest

import vendor
from weft.web.files import ASSETS, INDEX, PAGE_POLICY, find_file, get_index, get_version, load_files

SCRIPTS = {name: each.content.decode() for name, each in load_files().items() if name.endswith(".js")}
OWN = {name: text for name, text in SCRIPTS.items() if not name.startswith("vendor/")}


def list_named() -> list[str]:
    return re.findall(rf'(?:href|src)="{ASSETS}{get_version()}/([^"]+)"', get_index().content.decode())


def test_everything_that_the_page_loads_exists() -> None:
    named = list_named()
    assert len(named) > 5
    assert [name for name in named if find_file(name) is None] == []


def test_every_script_that_is_always_needed_is_requested_at_once() -> None:
    needed, pending = set[str](), ["app.js"]
    while pending:
        needed.add(name := pending.pop())
        imported = re.findall(r'^import .* from "\./([^"]+)"', OWN.get(name, ""), re.MULTILINE)
        pending += [each for each in imported if each not in needed]
    assert {name for name in list_named() if name.endswith(".js")} == needed


@pytest.mark.parametrize("name", OWN)
def test_everything_that_a_script_imports_exists(name: str) -> None:
    imported = re.findall(r'(?:from|import\()\s*"\./([^"]+)"', OWN[name])
    assert [each for each in imported if each not in SCRIPTS] == []


@pytest.mark.parametrize("name", OWN)
def test_html_becomes_elements_in_one_place_only(name: str) -> None:
    risky = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|dangerouslySetInnerHTML|\beval\(|new Function"
    assert (re.search(risky, OWN[name]) is None) == (name != "trust.js")


def test_the_page_itself_and_outside_paths_are_not_assets() -> None:
    for name in (INDEX, "", "../files.py", "/etc/passwd", "vendor", "vendor/manifest.json"):
        assert find_file(name) is None, name


def test_a_file_is_compressed_the_same_each_time() -> None:
    file = get_index()
    assert file.packed == type(file)(media=file.media, content=file.content).packed


def test_the_policy_allows_nothing_inline_and_nothing_from_elsewhere() -> None:
    directives = dict(each.split(" ", 1) for each in PAGE_POLICY.split("; "))
    assert directives["default-src"] == "'none'"
    assert {directives[name] for name in ("script-src", "style-src", "connect-src")} == {"'self'"}
    assert "unsafe" not in PAGE_POLICY
    assert "http" not in PAGE_POLICY


def test_vendored_files_match_the_manifest() -> None:
    assert vendor.find_faults() == []
    assert all(entry["licence"] and entry["version"] for entry in vendor.read_manifest())


def test_a_changed_or_unlisted_vendored_file_is_found(tmp_path: Path) -> None:
    for path in vendor.VENDOR.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes() + (b"//" if path.suffix == ".js" else b""))
    (tmp_path / "more.js").write_text("")
    assert vendor.find_faults(tmp_path) == [
        "preact-htm.js is not what the manifest says",
        "more.js is not in the manifest",
    ]
