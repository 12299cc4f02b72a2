"""What is carried over a compaction word for word, whatever the summary says (pure)."""

from collections.abc import Iterable, Iterator, Sequence

from weft.model.message import AssistantMessage, MessageWithParts, UserMessage
from weft.model.part import CompletedState, PatchPart, TextPart, ToolPart, changed_by
from weft.model.todo import Todo

LONGEST_REQUEST = 8_000
MOST_FILES = 50
EDITING = frozenset({"edit", "write", "multiedit", "patch", "apply_patch"})
DONE = frozenset({"completed", "cancelled"})


def carried(history: Sequence[MessageWithParts], todos: Iterable[Todo]) -> str:
    """The goal, the last request, what is still to be done, and which files were changed.

    `history` is all there ever was: the goal stood at its beginning, whatever has been summed up since.
    """
    requests = list(list_requests(history))
    sections = [
        ("The goal, as it was first put:", requests[:1] if len(requests) > 1 else []),
        ("The last request, word for word:", requests[-1:]),
        (
            "Still to be done:",
            [f"- [{todo.status}] {todo.content}" for todo in todos if todo.status not in DONE],
        ),
        ("Files changed so far:", [f"- {file}" for file in changed_files(history)[-MOST_FILES:]]),
    ]
    return "\n\n".join("\n".join((head, *lines)) for head, lines in sections if any(lines))


def list_requests(history: Iterable[MessageWithParts]) -> Iterator[str]:
    """What the person asked for, in their own words."""
    for message in history:
        if isinstance(message.info, UserMessage):
            words = "\n".join(
                part.text
                for part in message.parts
                if isinstance(part, TextPart) and not part.synthetic and not part.ignored
            ).strip()
            if words:
                yield words if len(words) <= LONGEST_REQUEST else words[:LONGEST_REQUEST] + " […]"


def changed_files(history: Iterable[MessageWithParts]) -> list[str]:
    """In the order they were last changed."""
    found: dict[str, None] = {}
    for message in history:
        if isinstance(message.info, AssistantMessage):
            for part in message.parts:
                for file in _changed_by(part):
                    found.pop(file, None)
                    found[file] = None
    return list(found)


def _changed_by(part: object) -> Sequence[str]:
    match part:
        case PatchPart():
            return changed_by(part)
        case ToolPart(tool=tool, state=CompletedState(input=input)) if tool in EDITING:
            path = input.get("filePath")
            return [path] if isinstance(path, str) else []
        case _:
            return []
