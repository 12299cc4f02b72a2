"""Options of questions, for all of them, for a conversation or for one question; and the checks of their values."""

import os
import warnings
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from decimal import Decimal, InvalidOperation
from typing import Protocol, runtime_checkable

from msgspec import Struct
from msgspec.structs import replace

from weft.agent.schema import AnswerType, to_answer_type
from weft.config.agents import to_ruleset
from weft.config.check import find_nearest
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
ARGUMENTS = ("model", "agent", "system", "tools", "permissions", "budget", "schema")
ASK_ARGUMENTS = ("files", "check")
OPEN_ARGUMENTS = ("store", "tape", "plugins", "env", "warn")
# What weft itself asks for. Tools of others have their own names.
PERMISSIONS = (
    "apply_patch", "bash", "batch", "codesearch", "doom_loop", "edit", "external_directory", "glob", "grep",
    "history", "interrupted", "jobs", "list", "lsp", "multiedit", "patch", "plan_enter", "plan_exit", "question", "read", "recall",
    "skill", "task", "todoread", "todowrite", "webfetch", "webfetch_private", "websearch", "write",
)  # fmt: skip
MIN_SIMILARITY = 0.8
PERMISSIONS_HINT = 'pass "allow", "ask" or "deny", rules such as {"bash": {"git *": "allow"}}, or a function'
BUDGET_HINT = "pass dollars, such as 0.50, or a weft.Budget"


def describe_type(value: object) -> str:
    """Name the kind of a value for a message: "an int", "the class Script"."""
    if isinstance(value, type):
        return f"the class {value.__name__}"
    name = type(value).__name__
    return f"{'an' if name[0].lower() in 'aeiou' else 'a'} {name}"


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
    **unknown: object,
) -> QuestionOptions:
    """Check the options that a caller passed. Raise `InvalidInputError` for a wrong value, `TypeError` for an unknown name."""
    for name in unknown:
        near = find_nearest(name, (*ARGUMENTS, *ASK_ARGUMENTS))
        suggestion = f"did you mean {near}?" if near else f"there are {', '.join(ARGUMENTS)}"
        if name in OPEN_ARGUMENTS:
            suggestion = "only weft.open takes it"
        raise TypeError(f"there is no argument {name!r}; {suggestion}")
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


class CheckedRules(dict[str, Action | Mapping[str, Action]]):
    """Rules whose names were checked: no typo in them is warned about again."""


def check_names(permissions: Permissions | None) -> Permissions | None:
    """Warn of misspelt names in rules, for a function between this one and the caller's, and return what was passed."""
    if not isinstance(permissions, Mapping):
        return permissions
    _warn_of_typos(str(name) for name in permissions)
    return CheckedRules(permissions)


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
    if isinstance(model, str):
        to_model_ref(model)
        return model
    if model is None or (isinstance(model, ModelSource) and not isinstance(model, type)):
        return model
    hint = 'name one, as in "anthropic/claude-sonnet-4-5", or pass a weft.testing.Script'
    if isinstance(model, type):
        hint = f"make one: {model.__name__}(…)"
    elif callable(model):
        hint = "wrap it: weft.testing.FunctionModel(function)"
    raise InvalidInputError("model", f"it is {describe_type(model)}", hint=hint)


def read_text(field: str, text: object) -> str | None:
    """Return a text, or None if there is none. Raise `InvalidInputError` if it is something else."""
    if text is None or isinstance(text, str):
        return text
    raise InvalidInputError(field, f"it is {describe_type(text)}, not text", hint="pass a str")


def _read_tools(tools: object) -> tuple[ToolFunction, ...] | None:
    if tools is None:
        return None
    if isinstance(tools, str) or not isinstance(tools, Sequence):
        name = getattr(tools, "__name__", "function")
        raise InvalidInputError("tools", f"it is {describe_type(tools)}", hint=f"pass a list: tools=[{name}]")
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
        if not isinstance(permissions, CheckedRules):
            _warn_of_typos(checked)
        return to_ruleset(checked, home=os.path.expanduser("~")), None
    if callable(permissions):
        return None, permissions
    raise InvalidInputError(
        "permissions",
        f"it is {describe_type(permissions)}",
        hint=PERMISSIONS_HINT,
    )


def _warn_of_typos(names: Iterable[str]) -> None:
    """Warn of a name that looks like a permission of weft: a rule with a wrong name would have no effect.

    The warning names a line of the caller's program: `stacklevel` skips the method that it called, and our helpers.
    """
    for name in names:
        near = "" if name in PERMISSIONS else find_nearest(name, PERMISSIONS, cutoff=MIN_SIMILARITY)
        if near:
            warnings.warn(
                f"permissions: weft has no permission {name!r}; did you mean {near!r}?", stacklevel=5
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
            raise InvalidInputError(
                field, f"{value!r} is none of {', '.join(ACTIONS)}", hint=PERMISSIONS_HINT
            )


def _read_budget(budget: object) -> Budget:
    if isinstance(budget, Budget):
        return budget
    if isinstance(budget, bool) or not isinstance(budget, Decimal | int | float | str):
        raise InvalidInputError("budget", f"it is {describe_type(budget)}", hint=BUDGET_HINT)
    try:
        dollars = Decimal(str(budget))
    except InvalidOperation as error:
        raise InvalidInputError(
            "budget", f"{budget!r} is not a number of dollars", hint=BUDGET_HINT
        ) from error
    if not dollars.is_finite() or dollars < 0:
        raise InvalidInputError("budget", f"{budget!r} is not a number of dollars", hint=BUDGET_HINT)
    return Budget(cost=dollars)
