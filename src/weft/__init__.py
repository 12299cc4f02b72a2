"""weft, a session engine for coding agents.

async with weft.open(".") as api:  # or weft.connect("http://127.0.0.1:4096")
    talk = await weft.converse(api)
    print(await talk.ask("fix the failing test"))
"""

from importlib import import_module

from weft.version import VERSION

__version__ = VERSION

# Where each public name is defined. They are imported on first use, so that `weft --version` stays fast.
_DEFINITIONS = {
    "open": "weft.local.open:open_weft",
    "connect": "weft.client.api:connect",
    "connect_sync": "weft.client.blocking:connect_sync",
    "converse": "weft.client.conversation:converse",
    "blocking": "weft.client.blocking:blocking",
    "prompt": "weft.model.input:prompt",
    "Api": "weft.api:Api",
    "Conversation": "weft.client.conversation:Conversation",
    "JsonFormat": "weft.model.message:JsonFormat",
    "PromptInput": "weft.model.input:PromptInput",
    "SessionInput": "weft.model.input:SessionInput",
    "WeftError": "weft.errors:WeftError",
}

__all__ = sorted(("__version__", *_DEFINITIONS))  # noqa: PLE0605


def __getattr__(name: str) -> object:
    if name not in _DEFINITIONS:
        raise AttributeError(f"module 'weft' has no attribute {name!r}")
    module, _, attribute = _DEFINITIONS[name].partition(":")
    found: object = getattr(import_module(module), attribute)
    return found
