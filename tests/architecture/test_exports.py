"""What `import weft` and `import weft.testing` offer, and what else is public."""

import ast
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

import weft
import weft.testing
from given.documents import ROOT, list_programs
from weft.version import VERSION

MODULES = [weft, weft.testing]


def read_stub(module: ModuleType) -> dict[str, str]:
    """Return the names that a stub declares, each with the place that it comes from."""
    tree = ast.parse(Path(str(module.__file__)).with_suffix(".pyi").read_text())
    imported = {
        str(name.asname): f"{node.module}:{name.name}"
        for node in tree.body
        if isinstance(node, ast.ImportFrom)
        for name in node.names
        if name.asname is not None
    }
    declared = {
        node.target.id: ""
        for node in tree.body
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    }
    functions = {node.name: "" for node in tree.body if isinstance(node, ast.FunctionDef)}
    return imported | declared | functions


@pytest.mark.parametrize("module", MODULES, ids=lambda each: each.__name__)
def test_exactly_the_public_names_are_exported(module: ModuleType) -> None:
    assert all(getattr(module, name) is not None for name in module.__all__)
    assert dir(module) == module.__all__ == sorted(module.__all__)
    with pytest.raises(AttributeError, match="has no attribute 'utils'"):
        _ = module.utils


@pytest.mark.parametrize("module", MODULES, ids=lambda each: each.__name__)
def test_the_type_stub_matches_the_module(module: ModuleType) -> None:
    stub = read_stub(module)
    deprecated = {name: each[0] for name, each in getattr(module, "_DEPRECATED", {}).items()}
    assert set(stub) == set(module.__all__) | set(deprecated)
    for name, place in stub.items():
        if place:
            origin, _, original = place.partition(":")
            assert (module._DEFINITIONS | deprecated)[name] in (origin, place), name
            assert original == name


@pytest.mark.parametrize("name", weft._DEPRECATED)
def test_a_deprecated_name_works_with_a_warning(name: str) -> None:
    definition, instead, removal = weft._DEPRECATED[name]
    module, _, attribute = definition.partition(":")
    expected = f"weft.{name} is deprecated, and weft {removal} removes it; write {instead}"
    with pytest.warns(DeprecationWarning, match=f"weft.{name} is deprecated") as warned:
        found = getattr(weft, name)
    assert [(str(each.message), each.filename) for each in warned] == [(expected, __file__)]
    assert found is getattr(import_module(module), attribute)
    assert instead == f"{module}.{attribute}"
    assert name not in dir(weft)


def test_importing_a_deprecated_name_warns_at_the_import(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text("from weft import prompt\nprint(prompt('hello').parts[0].text)\n")
    done = subprocess.run([sys.executable, program], capture_output=True, text=True, check=True)
    assert done.stdout == "hello\n"
    assert f"{program}:1: DeprecationWarning: weft.prompt is deprecated" in done.stderr


def test_a_deprecated_name_is_removed_in_its_version() -> None:
    current = [int(each) for each in VERSION.split(".")]
    late = {
        name: each[2] for name, each in weft._DEPRECATED.items() if current >= [*map(int, each[2].split("."))]
    }
    assert late == {}  # move them to _REMOVED


def test_a_removed_name_says_what_to_write_instead() -> None:
    with pytest.raises(AttributeError, match=r"write `agent\.converse"):
        weft.converse  # noqa: B018
    with pytest.raises(AttributeError, match=r"no attribute 'nonsense'$"):
        weft.nonsense  # noqa: B018


# --- what the documents show is public ---


def list_public_modules() -> list[str]:
    """Return the modules in the table of `docs/reference/versions.md`."""
    page = (ROOT / "docs" / "reference" / "versions.md").read_text().partition("| module |")[2]
    rows = page.partition("\n\n")[0].splitlines()
    return [name for row in rows for name in re.findall(r"`(weft[\w.]*)`", row.split("|")[1])]


def is_public(module: str) -> bool:
    whole = ("weft.model", "weft.testing")  # with their modules
    return module in list_public_modules() or module.startswith(tuple(f"{each}." for each in whole))


def list_shown_sources() -> dict[str, str]:
    files = [*(ROOT / "examples").rglob("*.py"), *(ROOT / "bench" / "first_hour" / "weft").glob("*.py")]
    return {
        **{str(each): each.text for each in list_programs()},
        **{str(each.relative_to(ROOT)): each.read_text() for each in files},
    }


def test_the_public_modules_exist() -> None:
    assert {import_module(each).__name__ for each in list_public_modules()} >= {"weft", "weft.testing"}


@pytest.mark.parametrize(("place", "text"), list_shown_sources().items(), ids=list(list_shown_sources()))
def test_documented_programs_use_public_modules_only(place: str, text: str) -> None:
    imported = [
        name
        for node in ast.walk(ast.parse(text))
        for name in (
            [str(node.module)]
            if isinstance(node, ast.ImportFrom)
            else [each.name for each in node.names]
            if isinstance(node, ast.Import)
            else []
        )
    ]
    ours = [each for each in imported if each.split(".")[0] == "weft"]
    assert [each for each in ours if not is_public(each)] == [], place
