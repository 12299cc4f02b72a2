"""Checkup: every document of a tree read once, to say which cannot be."""

import os
from typing import Any

from weft.model.damage import Damage
from weft.model.diff import FileDiff
from weft.model.message import AnyMessage
from weft.model.part import AnyPart
from weft.model.project import Project
from weft.model.session import Session
from weft.model.todo import Todo
from weft.store.layout import KEPT_WITH_OPENCODE, SUFFIX
from weft.store.tree import Tree

FLAT: dict[str, Any] = {
    "project": Project,
    "session_diff": tuple[FileDiff, ...],
    "todo": tuple[Todo, ...],
    **dict.fromkeys(KEPT_WITH_OPENCODE, Any),
}
NESTED: dict[str, Any] = {"session": Session, "message": AnyMessage, "part": AnyPart}


def find_damage(tree: Tree) -> list[Damage]:
    tree.documents.forget_problems()
    for shelf, kind in FLAT.items():
        _read_all(tree, tree.layout.shelf(shelf), kind)
    for shelf, kind in NESTED.items():
        directory = tree.layout.shelf(shelf)
        for name in tree.documents.directories(directory):
            _read_all(tree, f"{directory}/{name}", kind)
    for place, _, _ in os.walk(f"{tree.layout.own}/kept"):
        _read_kept(tree, place)
    return tree.problems()


def _read_all(tree: Tree, directory: str, kind: Any) -> None:
    for name in tree.documents.names(directory):
        tree.documents.find(f"{directory}/{name}{SUFFIX}", kind)


def _read_kept(tree: Tree, directory: str) -> None:
    for name in sorted(os.listdir(directory)):
        if name.endswith(SUFFIX):
            tree.documents.find(f"{directory}/{name}", Any)
