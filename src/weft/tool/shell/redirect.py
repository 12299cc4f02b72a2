"""Read redirections: the files they open, and the input they give to a command."""

import re
from collections.abc import Sequence
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from weft.model.permission import has_hole
from weft.tool.shell.arguments import Field
from weft.tool.shell.lexer import Node
from weft.tool.shell.state import StreamContent
from weft.tool.shell.words import WordReader

_WRITE_OPERATORS: Final = frozenset({">", ">>", "&>", "&>>", ">|", ">&"})
_DESCRIPTOR: Final = re.compile(r"\d*-?")


class Redirections(Struct, frozen=True, kw_only=True):
    """All redirections of one command. `nested` are nodes in which commands may run."""

    reads: list[Field]
    writes: list[Field]
    nested: list[Node]
    stdin: StreamContent | None = None


def read_redirections(nodes: Sequence[Node], words: WordReader) -> Redirections:
    """Read the redirections of a command."""
    redirections = Redirections(reads=[], writes=[], nested=list(nodes))
    stdin = None
    for node in nodes:
        stream = _read_redirection(node, words, redirections)
        # The last of several inputs is the one that is read.
        stdin = stream if stream is not None and _is_input(node) else stdin
    return replace(redirections, stdin=stdin)


def _read_redirection(node: Node, words: WordReader, redirections: Redirections) -> StreamContent | None:
    match node.type:
        case "file_redirect":
            return _read_file_redirection(node, words, redirections)
        case "heredoc_redirect":
            return _read_here_document(node)
        case _:
            return _read_here_string(node, words)


def _is_input(node: Node) -> bool:
    """Return True if standard input is redirected: by `<` or `0<`, but not by `3<`."""
    descriptors = [child.text for child in node.children if child.type == "file_descriptor"]
    return all(int(descriptor) == 0 for descriptor in descriptors)


def _read_file_redirection(node: Node, words: WordReader, redirections: Redirections) -> StreamContent | None:
    operator = next(child.type for child in node.children if not child.is_named)
    target = node.children[-1]
    if operator in (">&", "<&") and _DESCRIPTOR.fullmatch(target.text):
        return StreamContent() if operator == "<&" else None
    fields = [field for expansion in words.list_expansions(target) for field in expansion]
    # Here, a dash is an ordinary name.
    fields = [Field("./-") if field.text == "-" else field for field in fields]
    if operator in _WRITE_OPERATORS:
        redirections.writes.extend(fields)
        return None
    redirections.reads.extend(fields)
    if operator == "<>":
        redirections.writes.extend(fields)
    return StreamContent()


def _read_here_string(node: Node, words: WordReader) -> StreamContent:
    values = words.list_values(node.children[-1])
    is_known = len(values) == 1 and isinstance(values[0], str) and not has_hole(values[0])
    return StreamContent(text=f"{values[0]}\n") if is_known else StreamContent()


def _read_here_document(node: Node) -> StreamContent:
    tabs = any(child.type == "<<-" for child in node.children)
    start, body = node.named_children[-2:]
    quoted = start.text[0] in "'\"\\"
    # Without quotes, the shell removes backslashes and expands the text.
    if not quoted and (body.children or "\\" in body.text):
        return StreamContent()
    return StreamContent(text=re.sub(r"(?m)^\t+", "", body.text) if tabs else body.text)
