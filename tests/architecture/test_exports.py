"""The public names of `import weft`."""

import ast
from pathlib import Path

import weft

STUB = Path(weft.__file__).with_suffix(".pyi")


def test_every_public_name_is_there_and_none_besides() -> None:
    assert all(getattr(weft, name) is not None for name in weft.__all__)
    assert not hasattr(weft, "utils")


def test_what_type_checkers_are_told_is_what_there_is() -> None:
    tree = ast.parse(STUB.read_text())
    imported = {name.asname for node in tree.body if isinstance(node, ast.ImportFrom) for name in node.names}
    declared = {
        node.target.id
        for node in tree.body
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    }

    assert imported | declared == set(weft.__all__)
