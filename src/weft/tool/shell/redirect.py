"""Redirections: the files they open, what they feed to a command, and the words the grammar takes for part of them."""

import re
from collections.abc import Sequence
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from weft.tool.shell.field import Field, has_hole
from weft.tool.shell.parse import Node, text_of
from weft.tool.shell.scene import Feed
from weft.tool.shell.words import Words

_WRITING: Final = frozenset({">", ">>", "&>", "&>>", ">|", ">&"})
_BACKTICKS: Final = re.compile(r"(?<!\\)`((?:[^`\\]|\\.)*)`?", re.DOTALL)
_QUOTES: Final = frozenset("'\"\\")
_DUPLICATE: Final = re.compile(r"\d*-?")


class Redirect(Struct, frozen=True, kw_only=True):
    """All the redirections of one command together. `nested` are nodes in which something may run."""

    reads: list[Field]
    writes: list[Field]
    arguments: list[Node]
    nested: list[Node]
    scripts: list[str]
    stdin: Feed | None = None


def redirects_of(nodes: Sequence[Node], words: Words) -> Redirect:
    found = Redirect(reads=[], writes=[], arguments=[], nested=[], scripts=[])
    feeds: list[Feed] = []
    for node in nodes:
        feed = _feed(node, words, found)
        if feed is not None and _is_input(node):
            feeds.append(feed)
    # Of several one is read: the last as it is written, which is not the order that the grammar gives them in.
    return replace(found, stdin=Feed() if len(feeds) > 1 else next(iter(feeds), None))


def _feed(node: Node, words: Words, found: Redirect) -> Feed | None:
    match node.type:
        case "file_redirect":
            return _file(node, words, found)
        case "heredoc_redirect":
            return _here_document(node, words, found)
        case "herestring_redirect":
            found.nested.append(node)
            return _here_string(node, words)
        case _:
            found.nested.append(node)
            return None


def _is_input(node: Node) -> bool:
    """Whether it is the first descriptor that is redirected: `0<` and `<`, and not `3<`."""
    descriptors = [text_of(child) for child in node.children if child.type == "file_descriptor"]
    return descriptors in ([], ["0"])


def _file(node: Node, words: Words, found: Redirect) -> Feed | None:
    found.nested.append(node)
    operator = next((child.type for child in node.children if not child.is_named), "")
    targets = node.children_by_field_name("destination")
    found.arguments.extend(targets[1:])
    if not targets:
        return None
    if operator in (">&", "<&") and _DUPLICATE.fullmatch(text_of(targets[0])):
        return Feed() if operator == "<&" else None
    fields = [field for reading in words.readings(targets[0]) for field in reading]
    if operator in _WRITING:
        found.writes.extend(fields)
        return None
    found.reads.extend(fields)
    return Feed()


def _here_string(node: Node, words: Words) -> Feed:
    value = next(iter(node.named_children[-1:]), None)
    values = words.values(value) if value is not None else []
    known = len(values) == 1 and isinstance(values[0], str) and not has_hole(values[0])
    return Feed(text=f"{values[0]}\n") if known else Feed()


def _here_document(node: Node, words: Words, found: Redirect) -> Feed:
    text: str | None = ""
    tabs = any(child.type == "<<-" for child in node.children)
    quoted = any(
        child.type == "heredoc_start" and not _QUOTES.isdisjoint(text_of(child)) for child in node.children
    )
    for child in node.named_children:
        match child.type:
            case "heredoc_body":
                found.nested.append(child)
                plain = all(part.type in ("heredoc_content", "heredoc_end") for part in child.named_children)
                text = text_of(child) if plain else None
                if not quoted and "`" in text_of(child):
                    # The grammar passes over backticks here; the shell does not.
                    found.scripts.extend(_BACKTICKS.findall(text_of(child)))
                    text = None
            case "file_redirect":
                _file(child, words, found)
            case "heredoc_start" | "heredoc_end" | "pipeline" | "file_descriptor":
                pass
            case _ if child == node.child_by_field_name("right"):
                pass
            case _:
                found.arguments.append(child)
    return Feed(text=re.sub(r"(?m)^\t+", "", text) if text is not None and tabs else text)
