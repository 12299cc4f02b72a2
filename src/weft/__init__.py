"""weft, the session engine for coding agents.

async with weft.open(".") as api:
    session = await api.create_session(weft.SessionInput())
    answer = await api.prompt(session.id, weft.prompt("fix the failing test"))
"""

from importlib import import_module

from weft.version import VERSION

__version__ = VERSION

# Where each public name lives. They are loaded when asked for: `weft --version` must not pay for a single one.
_HOMES = {
    "open": "weft.app.open:open_weft",
    "prompt": "weft.model.input:prompt",
    "Api": "weft.api:Api",
    "JsonFormat": "weft.model.message:JsonFormat",
    "PromptInput": "weft.model.input:PromptInput",
    "SessionInput": "weft.model.input:SessionInput",
    "WeftError": "weft.errors:WeftError",
}

__all__ = ["Api", "JsonFormat", "PromptInput", "SessionInput", "WeftError", "__version__", "open", "prompt"]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'weft' has no attribute {name!r}")
    module, _, attribute = _HOMES[name].partition(":")
    found: object = getattr(import_module(module), attribute)
    return found
