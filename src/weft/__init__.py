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
    "QuestionArguments": "weft.agent.agent:QuestionArguments",
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
    "StoreOpening": "weft.agent.sessions:StoreOpening",
    "Session": "weft.agent.sessions:Session",
    "user_message": "weft.session.append:user_message",
    "assistant_message": "weft.session.append:assistant_message",
    "NewMessage": "weft.session.append:NewMessage",
    "NewText": "weft.session.append:NewText",
    "NewReasoning": "weft.session.append:NewReasoning",
    "NewFile": "weft.session.append:NewFile",
    "NewToolCall": "weft.session.append:NewToolCall",
    "NewToolResult": "weft.session.append:NewToolResult",
    "Api": "weft.api:Api",
    "PromptInput": "weft.model.input:PromptInput",
    "SessionInput": "weft.model.input:SessionInput",
    "WeftError": "weft.errors:WeftError",
    "NotFoundError": "weft.errors:NotFoundError",
    "InvalidInputError": "weft.errors:InvalidInputError",
    "ModelNotFoundError": "weft.errors:ModelNotFoundError",
    "NoModelError": "weft.errors:NoModelError",
    "NotPermittedError": "weft.errors:NotPermittedError",
    "ConfigError": "weft.errors:ConfigError",
    "UnreachableError": "weft.errors:UnreachableError",
    "SessionBusyError": "weft.errors:SessionBusyError",
    "ClosedError": "weft.errors:ClosedError",
    "UnsupportedError": "weft.errors:UnsupportedError",
}

__all__ = sorted(("__version__", *_DEFINITIONS))  # noqa: PLE0605


# Names that still work: their definitions, what to write instead, and the version that removes them.
_DEPRECATED = {
    "JsonFormat": ("weft.model.message:JsonFormat", "weft.model.message.JsonFormat", "0.4"),
    "prompt": ("weft.model.input:prompt", "weft.model.input.prompt", "0.4"),
}

# Names that are gone, and what to write instead.
_REMOVED = {
    "blocking": "with weft.open(…) as agent",
    "connect_sync": "with weft.connect(…) as agent",
    "converse": "agent.converse(…)",
}


def __getattr__(name: str) -> object:
    if name in _DEPRECATED:
        return _import_deprecated(name)
    if name not in _DEFINITIONS:
        from difflib import get_close_matches  # noqa: PLC0415  only a mistake needs it

        near = "".join(get_close_matches(name, __all__, n=1, cutoff=0.7))
        hint = f"; write `{_REMOVED[name]}`" if name in _REMOVED else (near and f"; did you mean `{near}`?")
        raise AttributeError(f"module 'weft' has no attribute {name!r}{hint}")
    return _import(_DEFINITIONS[name])


def _import_deprecated(name: str) -> object:
    from warnings import warn  # noqa: PLC0415  few programs use a deprecated name, and each of them only until it is changed

    definition, instead, removal = _DEPRECATED[name]
    warn(
        f"weft.{name} is deprecated, and weft {removal} removes it; write {instead}",
        DeprecationWarning,
        stacklevel=3,
    )
    return _import(definition)


def _import(definition: str) -> object:
    module, _, attribute = definition.partition(":")
    found: object = getattr(import_module(module), attribute)
    return found


def __dir__() -> list[str]:
    return __all__
