"""What became of files: how they differ, what is kept so that it can be taken back, and what came of taking it back."""

from typing import Final, Literal, NewType

from weft.model.wire import Wire, always

Tree = NewType("Tree", str)
"""The name of a git tree in our own store of objects."""

EMPTY_TREE: Final = Tree("4b825dc642cb6eb9a060e54bf8d69288fbee4904")
"""The tree without files, which every git repository has."""

Fate = Literal["restored", "removed", "unchanged", "kept", "uncovered", "missing"]


class FileDiff(Wire, frozen=True, kw_only=True):
    """One file before and after, as whole texts. A binary file has empty texts and no counts."""

    file: str
    before: str = always("")
    after: str = always("")
    additions: int
    deletions: int


class Uncovered(Wire, frozen=True, kw_only=True):
    """A file that changed, or may have, and cannot be taken back; and why. Absolute, as in `Patch.files`."""

    file: str
    reason: str


class Patch(Wire, frozen=True, kw_only=True):
    """What an agent changed: two trees of those files alone, as it found them and as it left them.

    The trees are all that undoing takes: store both names. `files` are absolute paths to be shown; a byte in a name
    that is no text stands there as `\\xNN`. A file in one tree alone was made, or removed.
    """

    hash: Tree
    until: Tree
    files: tuple[str, ...]
    uncovered: tuple[Uncovered, ...] = ()


class FileFate(Wire, frozen=True, kw_only=True):
    """What became, or would become, of one file, and why if it is not as it was before the agent.

    * `restored`: it is as before the agent; with a `reason`, as the person had left it between two of its changes;
    * `removed`: the agent had made it, and it is gone;
    * `unchanged`: it is as it should be already;
    * `kept`: the person changed it since, or something stands in its way: it is as it was found;
    * `uncovered`: nobody knows what it was like;
    * `missing`: what it was like cannot be read any more. Nothing is restored then, no file at all.
    """

    file: str
    fate: Fate
    reason: str = ""
