"""What `import weft` and `import weft.testing` offer."""

import ast
from pathlib import Path
from types import ModuleType

import pytest

import weft
import weft.testing

MODULES = [weft, weft.testing]


def read_stub(module: ModuleType) -> dict[str, str]:
    """Return the names that a stub declares, each with the place that it comes from."""
    tree = ast.parse(Path(str(module.__file__)).with_suffix(".pyi").read_text())
    imported = {
        str(name.asname): f"{node.module}:{name.name}"
        for node in tree.body
        if isinstance(node, ast.ImportFrom)
        for name in node.names
    }
    declared = {
        node.target.id: ""
        for node in tree.body
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    }
    return imported | declared


@pytest.mark.parametrize("module", MODULES, ids=lambda each: each.__name__)
def test_every_public_name_is_there_and_none_besides(module: ModuleType) -> None:
    assert all(getattr(module, name) is not None for name in module.__all__)
    assert dir(module) == module.__all__ == sorted(module.__all__)
    with pytest.raises(AttributeError, match="has no attribute 'utils'"):
        _ = module.utils


@pytest.mark.parametrize("module", MODULES, ids=lambda each: each.__name__)
def test_what_type_checkers_are_told_is_what_there_is(module: ModuleType) -> None:
    stub = read_stub(module)
    assert set(stub) == set(module.__all__)
    for name, place in stub.items():
        if place:
            origin, _, original = place.partition(":")
            definition = module._DEFINITIONS[name]
            assert definition in (origin, place), name
            assert original == name


def test_a_name_that_was_public_says_what_to_write_instead() -> None:
    with pytest.raises(AttributeError, match=r"write `agent\.converse"):
        weft.converse  # noqa: B018
    with pytest.raises(AttributeError, match=r"no attribute 'nonsense'$"):
        weft.nonsense  # noqa: B018
