"""Redirections: the files they open, and what they feed to a command."""

import re
from collections.abc import Sequence
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from weft.tool.shell.field import Field, has_hole
from weft.tool.shell.lexer import Node, text_of
from weft.tool.shell.scene import Feed
from weft.tool.shell.words import Words

_WRITING: Final = frozenset({">", ">>", "&>", "&>>", ">|", ">&"})
_DUPLICATE: Final = re.compile(r"\d*-?")


class Redirect(Struct, frozen=True, kw_only=True):
    """All the redirections of one command together. `nested` are nodes in which something may run."""

    reads: list[Field]
    writes: list[Field]
    nested: list[Node]
    stdin: Feed | None = None


def redirects_of(nodes: Sequence[Node], words: Words) -> Redirect:
    found = Redirect(reads=[], writes=[], nested=list(nodes))
    stdin = None
    for node in nodes:
        feed = _feed(node, words, found)
        # Of several inputs the last is read.
        stdin = feed if feed is not None and _is_input(node) else stdin
    return replace(found, stdin=stdin)


def _feed(node: Node, words: Words, found: Redirect) -> Feed | None:
    match node.type:
        case "file_redirect":
            return _file(node, words, found)
        case "heredoc_redirect":
            return _here_document(node)
        case _:
            return _here_string(node, words)


def _is_input(node: Node) -> bool:
    """Whether it is the first descriptor that is redirected: `0<` and `<`, and not `3<`."""
    descriptors = [text_of(child) for child in node.children if child.type == "file_descriptor"]
    return all(int(descriptor) == 0 for descriptor in descriptors)


def _file(node: Node, words: Words, found: Redirect) -> Feed | None:
    operator = next(child.type for child in node.children if not child.is_named)
    target = node.children[-1]
    if operator in (">&", "<&") and _DUPLICATE.fullmatch(text_of(target)):
        return Feed() if operator == "<&" else None
    fields = [field for reading in words.readings(target) for field in reading]
    # Here a dash is a name like any other.
    fields = [Field("./-") if field.text == "-" else field for field in fields]
    if operator in _WRITING:
        found.writes.extend(fields)
        return None
    found.reads.extend(fields)
    if operator == "<>":
        found.writes.extend(fields)
    return Feed()


def _here_string(node: Node, words: Words) -> Feed:
    values = words.values(node.children[-1])
    known = len(values) == 1 and isinstance(values[0], str) and not has_hole(values[0])
    return Feed(text=f"{values[0]}\n") if known else Feed()


def _here_document(node: Node) -> Feed:
    tabs = any(child.type == "<<-" for child in node.children)
    start, body = node.named_children[-2:]
    quoted = start.text[0] in "'\"\\"
    # Without quotes the shell takes backslashes away, and puts in what it expands.
    if not quoted and (body.children or "\\" in text_of(body)):
        return Feed()
    return Feed(text=re.sub(r"(?m)^\t+", "", text_of(body)) if tabs else text_of(body))
