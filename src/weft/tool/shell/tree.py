"""The tree of a shell command."""

from collections.abc import Sequence

from msgspec import Struct


class Node(Struct, frozen=True, kw_only=True, eq=False):
    """A piece of a command from `start` to before `end` of its source.

    `field` says what it is to the node that holds it. Marks (operators, reserved words, quotes) are not named; they have
    their text for a type.
    """

    type: str
    source: str
    start: int
    end: int
    children: Sequence["Node"] = ()
    is_named: bool = True
    field: str = ""

    @property
    def text(self) -> str:
        return self.source[self.start : self.end]

    @property
    def named_children(self) -> list["Node"]:
        return [child for child in self.children if child.is_named]

    def child_by_field_name(self, name: str) -> "Node | None":
        return next((child for child in self.children if child.field == name), None)

    def children_by_field_name(self, name: str) -> list["Node"]:
        return [child for child in self.children if child.field == name]


def text_of(node: Node) -> str:
    return node.text
