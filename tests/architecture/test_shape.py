"""Sizes, names and imports of every module; and that these checks can fail."""

from pathlib import Path

import pytest

import weft
from architecture import shape


@pytest.mark.parametrize("directory", shape.directories(), ids=shape.name)
def test_modules_follow_the_rules_for_size_names_and_imports(directory: Path) -> None:
    found = {shape.name(path): shape.faults(path) for path in directory.glob("*.py")}
    assert {where: faults for where, faults in found.items() if faults} == {}


def test_the_package_root_exports_its_names_in_order() -> None:
    offered = list(getattr(weft, "__all__", ()))
    assert offered == sorted(offered)
    assert [name for name in offered if not hasattr(weft, name)] == []


def test_the_report_counts_modules_and_names_the_largest(tmp_path: Path) -> None:
    (tmp_path / "__init__.py").touch()
    (tmp_path / "loom.py").write_text('"""A loom."""\n\n\ndef weave() -> None:\n    pass\n')
    (tmp_path / "thread.py").write_text('"""A thread."""\n')
    assert shape.report(tmp_path).splitlines() == [
        "modules            2, 6 lines",
        "median module      5 lines",
        "largest module     5 lines: loom.py",
        "largest module     1 lines: thread.py",
        "functions          1, median 2 lines",
        "largest function   2 lines: weave in loom.py",
    ]


LONG = '"""A long one."""\n' + "\n".join(f"x{number} = {number}" for number in range(600)) + "\n"
PLANTED = {
    "run/utils.py": ('"""Odds and ends."""\n', "says nothing"),
    "core/thing.py": ('"""A thing."""\n', "says nothing"),
    "run/silent.py": ("x = 1\n", "no docstring"),
    "run/long.py": (LONG, "601 lines"),
    "run/tall.py": ('"""Tall."""\n\n\ndef tall() -> None:\n' + "    pass\n" * 60, "tall has 61 lines"),
    "run/boss.py": ('"""A boss."""\n\n\nclass RunManager:\n    pass\n', "RunManager"),
    "run/late.py": ('"""Late."""\n\n\ndef late() -> None:\n    import json\n', "line 5: import at the top"),
    "run/silent_late.py": (
        '"""Late."""\n\n\ndef late() -> None:\n    import json  # noqa: PLC0415\n',
        "line 5: import at the top",
    ),
    "run/maybe.py": ('"""Maybe."""\n\ntry:\n    import json\nexcept ImportError:\n    pass\n', "line 4"),
    "run/__init__.py": ("from json import loads\n", "is empty"),
    "__init__.py": ("# a line\n" * 131, "the root has 131 lines"),
}


@pytest.mark.parametrize("where", PLANTED)
def test_the_check_finds_planted_faults(where: str, tmp_path: Path) -> None:
    text, said = PLANTED[where]
    planted = tmp_path / where
    planted.parent.mkdir(parents=True, exist_ok=True)
    planted.write_text(text)
    found = shape.faults(planted, tmp_path)
    assert len(found) == 1
    assert said in found[0]


def test_a_late_import_with_a_reason_is_allowed(tmp_path: Path) -> None:
    reasoned = tmp_path / "late.py"
    reasoned.write_text(
        '"""Late."""\n\n\ndef late() -> None:\n    import json  # noqa: F401, PLC0415  few runs need it\n'
    )
    assert shape.faults(reasoned, tmp_path) == []


def test_the_package_as_a_whole_follows_the_rules() -> None:
    assert shape.tree_faults() == []


def test_every_reason_for_a_small_module_is_needed() -> None:
    assert shape.SMALL_FOR_A_REASON.keys() - set(shape.list_small_modules(shape.read_all_facts())) == set()


def test_a_small_module_that_a_table_names_needs_no_reason(tmp_path: Path) -> None:
    source = tmp_path / "weft"
    (source / "tool").mkdir(parents=True)
    (source / "tool" / "loom.py").write_text('"""Weave."""\n\n\ndef weave() -> None:\n    pass\n')
    (source / "tool" / "registry.py").write_text('"""Tools."""\n\nprint("loom:weave")\n' + "\n" * 60)
    assert shape.tree_faults(source) == []
    (source / "tool" / "loom.py").write_text('"""Weave."""\n\n\ndef mend() -> None:\n    mend()\n')
    assert [fault[:12] for fault in shape.tree_faults(source)] == ["tool/loom.py"]


def test_the_check_finds_functions_and_constants_that_nothing_uses(tmp_path: Path) -> None:
    source = tmp_path / "weft"
    source.mkdir()
    body = '"""A loom."""\n\nLIMIT = 3\nTABLE = ("loom:weave",)\n\n\ndef weave() -> None:\n    print(TABLE)\n\n\ndef mend() -> None:\n    weave()\n'
    (source / "loom.py").write_text(body + "\n" * 60)
    assert shape.tree_faults(source) == [
        "loom.py: nothing uses LIMIT: remove it",
        "loom.py: nothing uses mend: remove it",
    ]


def test_the_check_finds_duplicate_class_names_tiny_modules_and_participles(tmp_path: Path) -> None:
    source = tmp_path / "weft"
    source.mkdir()
    body = '"""A page."""\n\n\nclass Page:\n    pass\n' + "\n" * 60
    (source / "page.py").write_text(body)
    (source / "asked.py").write_text(body)
    (source / "tiny.py").write_text('"""Tiny."""\n')
    assert shape.tree_faults(source) == [
        "Page means several classes: asked.py, page.py",
        "asked.py: name a module for a thing",
        "tiny.py has under 60 lines and one importer: put it where it is used, or give the reason in SMALL_FOR_A_REASON",
    ]
