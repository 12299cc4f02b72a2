"""The documents are correct: commands parse, programs run, configuration loads, shown output is real, and the site builds."""

import ast
import importlib
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import tutorial
from given.documents import ROOT, Block, list_blocks, list_programs
from given.user_pytest import run_pytest
from weft.cli.commands import normalise
from weft.cli.demo import GREETING
from weft.cli.main import parse_arguments
from weft.errors import InvalidInputError

OPERATORS = {"|", "||", "&&", ";", "&", ">", ">>", "<", "(", ")"}
WEFT = str(Path(sys.executable).with_name("weft"))


def commands_in(block: Block) -> Iterator[list[str]]:
    """Yield the arguments of every call of `weft` in a block."""
    for line in block.text.replace("\\\n", " ").splitlines():
        if block.language == "console" and not line.startswith("$ "):
            continue
        lexer = shlex.shlex(line.removeprefix("$ "), posix=True, punctuation_chars=True)
        lexer.whitespace_split = True
        call: list[str] = []
        for token in [*lexer, ";"]:
            if token not in OPERATORS:
                call.append(token)
                continue
            while call and (re.fullmatch(r"\w+=.*", call[0]) or call[0] in {"sudo", "env"}):
                call.pop(0)
            if call and Path(call[0]).name == "weft":
                yield call[1:]
            call = []


@pytest.mark.parametrize("block", list_blocks("sh", "console"), ids=str)
def test_every_documented_command_is_accepted(block: Block, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in commands_in(block):
        words, code = normalise(arguments), 0
        try:
            parse_arguments(words)
        except SystemExit as end:  # `--help` and `--version` end with 0
            code = int(end.code or 0)
        assert code == 0, f"weft {shlex.join(arguments)}: {capsys.readouterr().err}"


def test_commands_in_documents_are_found_and_a_wrong_one_is_refused() -> None:
    block = Block("x", 1, "sh", "X=1 weft run -c 'a | b' | jq . && weft undo --yes  # why\necho weft\n")
    assert list(commands_in(block)) == [["run", "-c", "a | b"], ["undo", "--yes"]]
    assert sum(len(list(commands_in(each))) for each in list_blocks("sh", "console")) > 100
    with pytest.raises(InvalidInputError):
        parse_arguments(["undo", "--why"])


def test_a_block_without_a_language_shows_no_command() -> None:
    shown = [
        str(each)
        for each in list_blocks("", "text")
        if re.search(r"^\$? ?weft [a-z]", each.text, re.MULTILINE)
    ]
    assert [each for each in shown if not each.startswith("docs/reference/commands.md")] == []


@pytest.mark.parametrize("block", list_blocks("json", "jsonc"), ids=str)
def test_every_documented_configuration_is_valid(block: Block, tmp_path: Path) -> None:
    without_comments = re.sub(r"(?<![:\"\w])//.*", "", block.text)
    value = json.loads(without_comments)
    if "type" in value or "agent_servers" in value:
        return  # an event, a result, or another program's file
    path = tmp_path / "opencode.json"
    path.write_text(json.dumps(value))
    done = subprocess.run(
        [WEFT, "config", "--format", "json"],
        cwd=tmp_path,
        env={**os.environ, "OPENCODE_CONFIG": str(path), "WEFT_TRUST": "1"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("block", list_blocks("python"), ids=str)
def test_every_documented_program_is_python_and_imports_what_exists(block: Block) -> None:
    tree = compile(block.text, str(block), "exec", ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("weft"):
            module = importlib.import_module(str(node.module))
            assert [each.name for each in node.names if not hasattr(module, each.name)] == []
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "weft":
            assert hasattr(importlib.import_module("weft"), node.attr), node.attr


def is_run(block: Block) -> bool:
    """Return True if a program does something when it is run: it opens an agent, or runs an event loop."""
    return bool(
        re.search(r"^(?:with weft\.open\(|\w+ = weft\.open\(|asyncio\.run\()", block.text, re.MULTILINE)
    )


def is_tested(block: Block) -> bool:
    return "def test_" in block.text


PROGRAMS = list_programs()


def prepare_project(directory: Path) -> None:
    """Write what the documents speak of: a project with greet.py, and the demo model as the configured one."""
    (directory / "greet.py").write_text(GREETING)
    (directory / "opencode.json").write_text('{"model": "scripted/demo"}')


@pytest.mark.slow
@pytest.mark.parametrize("block", [each for each in PROGRAMS if is_run(each)], ids=str)
def test_every_complete_program_runs(block: Block, tmp_path: Path) -> None:
    prepare_project(tmp_path)
    done = subprocess.run(
        [sys.executable, "-c", block.text],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout != "" or "print(" not in block.text


@pytest.mark.slow
@pytest.mark.parametrize("block", [each for each in PROGRAMS if is_tested(each)], ids=str)
def test_every_documented_test_passes_in_plain_pytest(block: Block, tmp_path: Path) -> None:
    prepare_project(tmp_path)
    (tmp_path / "test_shown.py").write_text(block.text)
    if "weft_tape" in block.text:
        recorded = run_pytest(tmp_path, "--weft-record")
        assert recorded.returncode == 0, recorded.stdout
        prepare_project(tmp_path)
    done = run_pytest(tmp_path)
    assert done.returncode == 0, done.stdout
    assert "1 passed" in done.stdout


def test_every_documented_program_is_run_or_tested() -> None:
    assert [str(each) for each in PROGRAMS if not is_run(each) and not is_tested(each)] == []
    pages = {"README.md", "docs/guides/python.md", "docs/guides/testing-agents.md"}
    assert {each.page for each in filter(is_run, PROGRAMS)} >= pages
    assert any(map(is_tested, PROGRAMS))


def run_tool(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )


def test_the_generated_reference_is_up_to_date() -> None:
    done = run_tool("tools/reference.py", "check")
    assert (done.returncode, done.stderr) == (0, "")


def test_every_page_that_shows_output_is_executed() -> None:
    run = {str(page.relative_to(ROOT)) for page in (*tutorial.PAGES, *tutorial.STORIES)}
    shown = {each.page for each in list_blocks("console")}
    assert {
        page for page in shown if not page.startswith("examples/")
    } == run  # examples have their own tests


@pytest.mark.slow
def test_the_tutorial_and_the_picture_show_real_output() -> None:
    done = run_tool("tools/tutorial.py", "check")
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.slow
def test_the_site_builds_without_dead_links_and_loads_nothing_from_elsewhere(tmp_path: Path) -> None:
    pytest.importorskip("mkdocs")
    done = run_tool("-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path / "site"))
    assert done.returncode == 0, done.stdout + done.stderr
    pages = list((tmp_path / "site").rglob("*.html"))
    assert len(pages) > 80
    loaded = re.compile(r'<(?:script|img|link|iframe)[^>]+(?:src|href)="(?:https?:)?//')
    assert [str(page) for page in pages if loaded.search(page.read_text())] == []
