"""An integration without its package names the extra that provides it."""

import subprocess
import sys

import pytest

from weft.errors import MissingPackageError
from weft.integrations.packages import require_package

WITHOUT = """
import sys
sys.modules[{package!r}] = None
try:
    import weft.integrations.{module}
except ImportError as error:
    print(error)
"""


@pytest.mark.parametrize(
    ("module", "package", "extra"),
    [
        ("openai_agents", "agents", "openai-agents"),
        ("pydantic_ai", "pydantic_ai", "pydantic-ai"),
        ("langgraph", "langgraph", "langgraph"),
    ],
)
def test_an_integration_without_its_package_names_the_extra(module: str, package: str, extra: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT.format(module=module, package=package)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.stderr, done.stdout) == (
        "",
        f"the package of the module {package!r} is not installed; in weft's checkout: pip install '.[{extra}]'\n",
    )


def test_a_missing_package_is_an_error_of_weft_with_a_hint() -> None:
    require_package("json", "nothing")
    with pytest.raises(MissingPackageError) as caught:
        require_package("no_such_package", "weft[some-extra]")
    assert caught.value.hint == "in weft's checkout: pip install '.[some-extra]'"
