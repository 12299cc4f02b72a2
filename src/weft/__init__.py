"""weft, a session engine for coding agents.

with weft.open(".", model="anthropic/claude-sonnet-4-5") as agent:  # or async with; or weft.connect("http://127.0.0.1:4096")
    print(agent.ask("What does this repository do?"))
"""

from importlib import import_module

from weft.version import VERSION

__version__ = VERSION

# Where each public name is defined. They are imported on first use, so that `weft --version` stays fast; `__init__.pyi`
# says the same to type checkers and editors.
_DEFINITIONS = {
    "open": "weft.agent.open:open",
    "connect": "weft.agent.connect:connect",
    "Agent": "weft.agent.agent:Agent",
    "Conversation": "weft.agent.agent:Conversation",
    "Stream": "weft.agent.agent:Stream",
    "Opening": "weft.agent.opening:Opening",
    "BlockingAgent": "weft.agent.blocking:BlockingAgent",
    "BlockingConversation": "weft.agent.blocking:BlockingConversation",
    "BlockingStream": "weft.agent.blocking:BlockingStream",
    "Answer": "weft.agent.answer:Answer",
    "Step": "weft.agent.answer:Step",
    "Call": "weft.agent.answer:Call",
    "RunFailedError": "weft.agent.answer:RunFailedError",
    "RunRefusedError": "weft.agent.answer:RunRefusedError",
    "BudgetExceededError": "weft.agent.answer:BudgetExceededError",
    "RunTimeoutError": "weft.agent.answer:RunTimeoutError",
    "RunLoopError": "weft.agent.answer:RunLoopError",
    "RunAbortedError": "weft.agent.answer:RunAbortedError",
    "InvalidAnswerError": "weft.agent.answer:InvalidAnswerError",
    "TextEvent": "weft.agent.events:TextEvent",
    "ReasoningEvent": "weft.agent.events:ReasoningEvent",
    "CallEvent": "weft.agent.events:CallEvent",
    "PermissionEvent": "weft.agent.events:PermissionEvent",
    "RetryEvent": "weft.agent.events:RetryEvent",
    "StepEvent": "weft.agent.events:StepEvent",
    "AnswerEvent": "weft.agent.events:AnswerEvent",
    "Json": "weft.agent.schema:Json",
    "Permissions": "weft.agent.options:Permissions",
    "ModelSource": "weft.agent.options:ModelSource",
    "ToolCallContext": "weft.plugin.tools:ToolCallContext",
    "ToolAnswer": "weft.plugin.tools:ToolAnswer",
    "Budget": "weft.model.spending:Budget",
    "Tokens": "weft.model.part:Tokens",
    "FileDiff": "weft.model.diff:FileDiff",
    "PermissionRequest": "weft.model.permission:PermissionRequest",
    "MessageWithParts": "weft.model.message:MessageWithParts",
    "SessionID": "weft.model.ids:SessionID",
    "open_store": "weft.agent.sessions:open_store",
    "SessionStore": "weft.agent.sessions:SessionStore",
    "Session": "weft.agent.sessions:Session",
    "Api": "weft.api:Api",
    "PromptInput": "weft.model.input:PromptInput",
    "SessionInput": "weft.model.input:SessionInput",
    "WeftError": "weft.errors:WeftError",
    "NotFoundError": "weft.errors:NotFoundError",
    "InvalidInputError": "weft.errors:InvalidInputError",
    "ModelNotFoundError": "weft.errors:ModelNotFoundError",
    "ConfigError": "weft.errors:ConfigError",
    "UnreachableError": "weft.errors:UnreachableError",
    "SessionBusyError": "weft.errors:SessionBusyError",
    "ClosedError": "weft.errors:ClosedError",
    "UnsupportedError": "weft.errors:UnsupportedError",
}

__all__ = sorted(("__version__", *_DEFINITIONS))  # noqa: PLE0605


# Names that were public once, and what to write instead.
_REPLACED = {
    "blocking": "with weft.open(…) as agent",
    "connect_sync": "with weft.connect(…) as agent",
    "converse": "agent.converse(…)",
    "prompt": "agent.ask(…)",
}


def __getattr__(name: str) -> object:
    if name not in _DEFINITIONS:
        instead = f"; write `{_REPLACED[name]}`" if name in _REPLACED else ""
        raise AttributeError(f"module 'weft' has no attribute {name!r}{instead}")
    module, _, attribute = _DEFINITIONS[name].partition(":")
    found: object = getattr(import_module(module), attribute)
    return found


def __dir__() -> list[str]:
    return __all__
