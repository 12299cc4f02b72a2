"""The mutations of `tools/mutate.py` can still be made: each names one place in the source, and tests that exist."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

TOOL = Path(__file__).parents[2] / "tools" / "mutate.py"


def load_tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("mutate", TOOL)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["mutate"] = module
    spec.loader.exec_module(module)
    return module


MUTATE = load_tool()


@pytest.mark.parametrize(
    "mutation", list(MUTATE.list_mutations()), ids=lambda each: f"{each.package}: {each.name}"
)
def test_every_mutation_can_be_applied(mutation: object) -> None:
    assert MUTATE.find_fault(mutation) == ""


def test_a_mutation_that_no_longer_applies_is_named() -> None:
    gone = MUTATE.Mutation(
        package="shell", name="gone", file="errors.py", old="no such text", new="", tests=("tests/unit",)
    )
    assert MUTATE.find_fault(gone) == "the old text occurs 0 times in errors.py"
    assert MUTATE.find_fault(gone._replace(file="no.py")) == "there is no file no.py"
    there = gone._replace(old="class WeftError", new="class WeftError", tests=("tests/no.py",))
    assert MUTATE.find_fault(there) == "there is no test tests/no.py"
    assert MUTATE.find_fault(there._replace(new="class class")) == "errors.py is no longer Python"
