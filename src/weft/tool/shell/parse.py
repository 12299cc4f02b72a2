"""Shell text as a tree; or why it cannot be trusted to mean what it seems to mean."""

import re
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Final, Protocol

from msgspec import Struct

LONGEST: Final = 256 * 1024
DEEPEST: Final = 120
MOST_NODES: Final = 60_000
# Broken pipelines take the grammar's patience: as long as they are long, squared.
MOST_PIPES: Final = 3000

# The grammar takes such a line for two words, the shell for one.
_BROKEN_WORD: Final = re.compile(rb"[^\s;&|()<>]\\\n[^\s;&|()<>]")
# Before a here-document the grammar passes over a dash. With a backslash it means the same, wherever it stands.
_LONE_DASH: Final = re.compile(rb"(?<=[ \t])-(?=[ \t]+<<[^<])")
# Two, three and four bytes: every character past U+00FF. The grammar looks it up in a table of the C library that ends
# there, and whoever is far enough past that end is killed. To the shell they are all parts of words.
_FAR: Final = re.compile(rb"[\xc4-\xdf][\x80-\xbf]|[\xe0-\xef][\x80-\xbf]{2}|[\xf0-\xf4][\x80-\xbf]{3}")
_NEAR: Final = {2: "¦".encode(), 3: "¦_".encode(), 4: "¦¦".encode()}
_CONTROL: Final = re.compile(rb"[\x00-\x08\x0b-\x1f\x7f]")
_BLANK: Final = re.compile(rb"(?:[ \t\n]|\\\n)*")
_ODD_WORD: Final = re.compile(rb"(?<!\\)(?:\\\\)*[;|&<>()`\n\"']|(?<!\\)(?:\\\\)*\$[\w({@*#?!'\"-]")
# Between the parts of these there may be text that no part covers.
_TEXTS: Final = frozenset(
    {"string", "heredoc_body", "heredoc_redirect", "expansion", "regex", "extglob_pattern"}
)


class Node(Protocol):
    """What is used of a node of the grammar's tree."""

    @property
    def type(self) -> str: ...
    @property
    def text(self) -> bytes | None: ...
    @property
    def is_named(self) -> bool: ...
    @property
    def is_missing(self) -> bool: ...
    @property
    def has_error(self) -> bool: ...
    @property
    def start_byte(self) -> int: ...
    @property
    def end_byte(self) -> int: ...
    @property
    def children(self) -> "Sequence[Node]": ...
    @property
    def named_children(self) -> "Sequence[Node]": ...
    def child_by_field_name(self, name: str, /) -> "Node | None": ...
    def children_by_field_name(self, name: str, /) -> "Sequence[Node]": ...


class _Written(Struct, frozen=True):
    """A node that was read with other characters, of the same length, in the place of some; its text is as written."""

    node: Node
    source: bytes

    @property
    def type(self) -> str:
        return self.node.type

    @property
    def text(self) -> bytes:
        return self.source[self.start_byte : self.end_byte]

    @property
    def is_named(self) -> bool:
        return self.node.is_named

    @property
    def is_missing(self) -> bool:
        return self.node.is_missing

    @property
    def has_error(self) -> bool:
        return self.node.has_error

    @property
    def start_byte(self) -> int:
        return self.node.start_byte

    @property
    def end_byte(self) -> int:
        return self.node.end_byte

    @property
    def children(self) -> Sequence[Node]:
        return [_Written(child, self.source) for child in self.node.children]

    @property
    def named_children(self) -> Sequence[Node]:
        return [_Written(child, self.source) for child in self.node.named_children]

    def child_by_field_name(self, name: str, /) -> Node | None:
        child = self.node.child_by_field_name(name)
        return None if child is None else _Written(child, self.source)

    def children_by_field_name(self, name: str, /) -> Sequence[Node]:
        return [_Written(child, self.source) for child in self.node.children_by_field_name(name)]


def parse(text: str) -> Node | str:
    """The tree, or the reason why there is none to rely on."""
    source = _LONE_DASH.sub(rb"\\-", text.encode(errors="replace"))
    if len(source) > LONGEST or source.count(b"|") > MOST_PIPES:
        return "it is too long to be judged"
    if _CONTROL.search(source):
        return "there are control characters in it"
    if _BROKEN_WORD.search(source):
        return "a line is broken in the middle of a word"
    near = _FAR.sub(lambda far: _NEAR[len(far[0])], source)
    parsed = _parser()(near)
    root: Node = parsed if near == source else _Written(parsed, source)
    if root.has_error:
        return "it is not shell as we can read it"
    return _doubt(root, source) or root


def text_of(node: Node) -> str:
    return (node.text or b"").decode(errors="replace")


@lru_cache(maxsize=1)
def _parser() -> Callable[[bytes], Node]:
    # Late: the grammar is of no use to a command that runs no shell.
    import tree_sitter_bash  # noqa: PLC0415
    from tree_sitter import Language, Parser  # noqa: PLC0415

    parser = Parser(Language(tree_sitter_bash.language()))
    return lambda source: parser.parse(source).root_node


def _doubt(root: Node, source: bytes) -> str:
    """Where the grammar is known to read something else than the shell does, or to pass over it."""
    for seen, (node, depth) in enumerate(_all(root)):
        if depth > DEEPEST or seen > MOST_NODES:
            return "it is nested too deeply to be judged"
        if node.is_missing or node.type in ("ERROR", "``"):
            return "it is not shell as we can read it"
        if node.type == "word" and _ODD_WORD.search(node.text or b""):
            return "there is a word in it that could be several"
        if node.type == "command_substitution" and _is_nested_backtick(node):
            return "there are backticks within backticks"
        if _skips(node, source):
            return "there is text in it that we cannot read"
    return ""


def _all(root: Node) -> Iterator[tuple[Node, int]]:
    waiting = [(root, 0)]
    while waiting:
        node, depth = waiting.pop()
        yield node, depth
        if depth <= DEEPEST:
            waiting.extend((child, depth + 1) for child in node.children)


def _is_nested_backtick(node: Node) -> bool:
    text = node.text or b""
    return text.startswith(b"`") and b"`" in text[1:-1]


def _skips(node: Node, source: bytes) -> bool:
    """Whether something other than blanks lies between the parts of a node."""
    children = node.children
    if not children or node.type in _TEXTS:
        return False
    place = node.start_byte
    for child in children:
        if child.start_byte > place and not _BLANK.fullmatch(source, place, child.start_byte):
            return True
        place = max(place, child.end_byte)
    return place < node.end_byte and not _BLANK.fullmatch(source, place, node.end_byte)
