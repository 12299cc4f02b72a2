"""The order of a statement: pipelines one after the other, each with what its redirections belong to.

The grammar hangs redirections, and what follows a here-document, on whole lists; the shell on the last command of them.
"""

from msgspec import Struct

from weft.tool.shell.parse import Node


class Stage(Struct, frozen=True):
    """A command of a pipeline; without a node there are only redirections."""

    node: Node | None
    redirects: tuple[Node, ...] = ()


class Step(Struct, frozen=True):
    """A pipeline, and what joins it to the one before."""

    operator: str
    stages: tuple[Stage, ...]


def steps_of(node: Node, redirects: tuple[Node, ...] = ()) -> list[Step]:
    match node.type:
        case "list":
            return _list(node, redirects)
        case "pipeline":
            return _pipeline(node, redirects)
        case "redirected_statement":
            return _redirected(node, redirects)
        case "variable_assignments":
            return [Step("", (Stage(child),)) for child in node.named_children]
        case "file_redirect" | "heredoc_redirect" | "herestring_redirect":
            return [Step("", (Stage(None, (node, *redirects)),))]
        case "comment":
            return []
        case _:
            return [Step("", (Stage(node, redirects),))]


def _list(node: Node, redirects: tuple[Node, ...]) -> list[Step]:
    steps: list[Step] = []
    operator, parts = "", [child for child in node.children if child.type != "comment"]
    for child in parts:
        if not child.is_named:
            operator = child.type
            continue
        found = steps_of(child, redirects if child is parts[-1] or child == parts[-1] else ())
        steps += _joined(operator, found)
    return steps


def _pipeline(node: Node, redirects: tuple[Node, ...]) -> list[Step]:
    stages = [child for child in node.named_children if child.type != "comment"]
    steps: list[Step] = []
    for place, child in enumerate(stages):
        found = steps_of(child, redirects if place == len(stages) - 1 else ())
        steps = _piped(steps, found) if steps else found
    return steps


def _redirected(node: Node, redirects: tuple[Node, ...]) -> list[Step]:
    body = node.child_by_field_name("body")
    # Here-strings are there without the name of a redirection.
    own = tuple(child for child in node.named_children if child.type.endswith("_redirect"))
    steps = (
        steps_of(body, (*own, *redirects))
        if body is not None
        else [Step("", (Stage(None, (*own, *redirects)),))]
    )
    for redirect in own:
        if redirect.type == "heredoc_redirect":
            steps = _after_heredoc(steps, redirect)
    return steps


def _after_heredoc(steps: list[Step], redirect: Node) -> list[Step]:
    """What stands on the line of a here-document behind it."""
    for child in redirect.named_children:
        if child.type == "pipeline":
            steps = _piped(steps, _pipeline(child, ()))
    right = redirect.child_by_field_name("right")
    operator = redirect.child_by_field_name("operator")
    if right is not None:
        steps = [*steps, *_joined(operator.type if operator is not None else ";", steps_of(right))]
    return steps


def _piped(steps: list[Step], more: list[Step]) -> list[Step]:
    if not steps or not more:
        return [*steps, *more]
    joined = Step(steps[-1].operator, (*steps[-1].stages, *more[0].stages))
    return [*steps[:-1], joined, *more[1:]]


def _joined(operator: str, steps: list[Step]) -> list[Step]:
    return [Step(operator, steps[0].stages), *steps[1:]] if steps else []
