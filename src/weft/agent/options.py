"""What a caller can set for all questions, for a conversation, or for one question, and the checks of it."""

import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from decimal import Decimal, InvalidOperation
from typing import Protocol, runtime_checkable

from msgspec import Struct
from msgspec.structs import replace

from weft.agent.schema import AnswerType, to_answer_type
from weft.config.agents import to_ruleset
from weft.errors import InvalidInputError
from weft.host.clock import Clock
from weft.model.part import ModelRef
from weft.model.permission import Action, PermissionRequest, Reply, Ruleset
from weft.model.spending import Budget
from weft.provider.registry import ServedModel

Permit = Callable[[PermissionRequest], Reply | Awaitable[Reply | None] | None]
"""A function that answers permission requests: "once", "always" or "reject"; None leaves it to others. It may be async."""

PermissionRules = Mapping[str, Action | Mapping[str, Action]]
"""Rules as in the configuration: `{"edit": "allow", "bash": {"git *": "allow", "*": "deny"}}`."""

Permissions = Action | PermissionRules | Permit

ToolFunction = Callable[..., object]
"""A plain or async function with type hints and a docstring, which the model may call."""

AnyBudget = Budget | Decimal | int | float | str
"""A budget; a number is dollars."""

ACTIONS = ("allow", "ask", "deny")


@runtime_checkable
class ModelSource(Protocol):
    """A model that is not named but given, such as `weft.testing.Script`."""

    def serve(self, clock: Clock) -> ServedModel:
        """Return the model with the provider that answers for it."""
        ...


AnyModel = str | ModelSource


class QuestionOptions(Struct, frozen=True, kw_only=True):
    """The settings of a question. None means: as the level above says, in the end as the configuration says."""

    model: AnyModel | None = None
    agent: str | None = None
    system: str | None = None
    tools: tuple[ToolFunction, ...] | None = None
    rules: Ruleset | None = None
    permit: Permit | None = None
    budget: Budget | None = None
    type: AnswerType | None = None


def read_options(
    *,
    model: AnyModel | None = None,
    agent: str | None = None,
    system: str | None = None,
    tools: Sequence[ToolFunction] | None = None,
    permissions: Permissions | None = None,
    budget: AnyBudget | None = None,
    schema: object = None,
) -> QuestionOptions:
    """Check what a caller passed. Raise `InvalidInputError` that names the argument."""
    rules, permit = _read_permissions(permissions)
    return QuestionOptions(
        model=_read_model(model),
        agent=read_text("agent", agent),
        system=read_text("system", system),
        tools=_read_tools(tools),
        rules=rules,
        permit=permit,
        budget=None if budget is None else _read_budget(budget),
        type=None if schema is None else to_answer_type(schema),
    )


def override(options: QuestionOptions, by: QuestionOptions) -> QuestionOptions:
    """Return options in which everything that `by` sets replaces what `options` says."""
    changes = {name: getattr(by, name) for name in by.__struct_fields__ if getattr(by, name) is not None}
    return replace(options, **changes)


def to_model_ref(name: str) -> ModelRef:
    """Return the model of a name `provider/model`. Raise `InvalidInputError`."""
    provider, slash, model = name.partition("/")
    if not slash or not provider or not model:
        raise InvalidInputError(
            "model", f"{name!r} is not of the form provider/model", hint="weft models lists what there is"
        )
    return ModelRef(provider_id=provider, model_id=model)


def _read_model(model: object) -> AnyModel | None:
    match model:
        case None | ModelSource():
            return model
        case str():
            to_model_ref(model)
            return model
        case _:
            raise InvalidInputError(
                "model",
                f"it is a {type(model).__name__}",
                hint='name one, as in "anthropic/claude-sonnet-4-5", or pass a weft.testing.Script',
            )


def read_text(field: str, text: object) -> str | None:
    """Return a text, or None if there is none. Raise `InvalidInputError` if it is something else."""
    if text is None or isinstance(text, str):
        return text
    raise InvalidInputError(field, f"it is a {type(text).__name__}, not text")


def _read_tools(tools: object) -> tuple[ToolFunction, ...] | None:
    if tools is None:
        return None
    if isinstance(tools, str) or not isinstance(tools, Sequence):
        raise InvalidInputError("tools", f"it is a {type(tools).__name__}", hint="pass a list of functions")
    for each in tools:
        if not callable(each):
            raise InvalidInputError("tools", f"{each!r} is not a function", hint="pass the function itself")
    return tuple(tools)


def _read_permissions(permissions: object) -> tuple[Ruleset | None, Permit | None]:
    if permissions is None:
        return None, None
    if isinstance(permissions, str):
        return to_ruleset({"*": _read_action("permissions", permissions)}, home=os.path.expanduser("~")), None
    if isinstance(permissions, Mapping):
        checked = {str(name): _read_patterns(str(name), value) for name, value in permissions.items()}
        return to_ruleset(checked, home=os.path.expanduser("~")), None
    if callable(permissions):
        return None, permissions
    raise InvalidInputError(
        "permissions",
        f"it is a {type(permissions).__name__}",
        hint='pass "allow", "ask" or "deny", rules such as {"bash": {"git *": "allow"}}, or a function',
    )


def _read_patterns(name: str, value: object) -> Action | dict[str, Action]:
    if isinstance(value, Mapping):
        return {str(pattern): _read_action(f"permissions.{name}", each) for pattern, each in value.items()}
    return _read_action(f"permissions.{name}", value)


def _read_action(field: str, value: object) -> Action:
    match value:
        case "allow" | "ask" | "deny":
            return value
        case _:
            raise InvalidInputError(field, f"{value!r} is none of {', '.join(ACTIONS)}")


def _read_budget(budget: object) -> Budget:
    if isinstance(budget, Budget):
        return budget
    if isinstance(budget, bool) or not isinstance(budget, Decimal | int | float | str):
        raise InvalidInputError(
            "budget", f"it is a {type(budget).__name__}", hint="pass dollars, or a weft.Budget"
        )
    try:
        dollars = Decimal(str(budget))
    except InvalidOperation as error:
        raise InvalidInputError("budget", f"{budget!r} is not a number of dollars") from error
    if not dollars.is_finite() or dollars < 0:
        raise InvalidInputError("budget", f"{budget!r} is not a number of dollars")
    return Budget(cost=dollars)
