"""Test agents without a key and without a network: scripted models, recordings, assertions, and contract suites."""

from importlib import import_module

# Where each public name is defined. They are imported on first use, because pytest imports this package in every test run
# for the sake of its plugin; `__init__.pyi` says the same to type checkers and editors.
_DEFINITIONS = {
    "FunctionModel": "weft.testing.script",
    "ModelConversation": "weft.testing.script",
    "Reply": "weft.testing.script",
    "Script": "weft.testing.script",
    "Tape": "weft.provider.tape",
    "assert_called": "weft.testing.assertions",
    "assert_changed": "weft.testing.assertions",
    "assert_cost": "weft.testing.assertions",
    "assert_not_called": "weft.testing.assertions",
    "assert_unchanged": "weft.testing.assertions",
    "call": "weft.testing.script",
    "recording": "weft.testing.replay",
    "replaying": "weft.testing.replay",
    "say": "weft.testing.script",
    "think": "weft.testing.script",
}

__all__ = sorted(_DEFINITIONS)  # noqa: PLE0605


def __getattr__(name: str) -> object:
    if name not in _DEFINITIONS:
        raise AttributeError(f"module 'weft.testing' has no attribute {name!r}")
    found: object = getattr(import_module(_DEFINITIONS[name]), name)
    return found


def __dir__() -> list[str]:
    return __all__
