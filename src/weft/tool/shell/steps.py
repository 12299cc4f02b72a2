"""The order of a statement: pipelines one after the other, each with what its redirections belong to."""

from msgspec import Struct

from weft.tool.shell.tree import Node


class Stage(Struct, frozen=True):
    """A command of a pipeline, with the redirections that stand around it."""

    node: Node
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
        case _:
            return [Step("", (Stage(node, redirects),))]


def _list(node: Node, redirects: tuple[Node, ...]) -> list[Step]:
    steps: list[Step] = []
    operator = ""
    for child in node.children:
        if not child.is_named:
            operator = child.type
            continue
        found = steps_of(child, redirects if child is node.children[-1] else ())
        steps += _joined(operator, found)
    return steps


def _pipeline(node: Node, redirects: tuple[Node, ...]) -> list[Step]:
    stages = node.named_children
    steps: list[Step] = []
    for place, child in enumerate(stages):
        found = steps_of(child, redirects if place == len(stages) - 1 else ())
        steps = _piped(steps, found) if steps else found
    return steps


def _redirected(node: Node, redirects: tuple[Node, ...]) -> list[Step]:
    body = node.child_by_field_name("body")
    own = tuple(child for child in node.named_children if child.type.endswith("_redirect"))
    return steps_of(body, (*own, *redirects)) if body is not None else []


def _piped(steps: list[Step], more: list[Step]) -> list[Step]:
    if not steps or not more:
        return [*steps, *more]
    joined = Step(steps[-1].operator, (*steps[-1].stages, *more[0].stages))
    return [*steps[:-1], joined, *more[1:]]


def _joined(operator: str, steps: list[Step]) -> list[Step]:
    return [Step(operator, steps[0].stages), *steps[1:]] if steps else []
