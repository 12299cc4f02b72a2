"""Authors of lines as a trace record of Agent Trace 0.1.0 (pure).

https://github.com/cursor/agent-trace, January 2026. A conversation is a session with one model; its lines are ranges.
"""

import hashlib
import uuid
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final

from weft.model.data import Author, BlameLine, FileBlame
from weft.model.wire import encode
from weft.version import VERSION

TRACE_VERSION: Final = "0.1.0"
MAX_MODEL_ID: Final = 250
_CONTRIBUTORS: Final = {"session": "ai", "person": "human", "unknown": "unknown"}


def to_trace_record(blames: Sequence[FileBlame], *, revision: str | None, now: int) -> dict[str, Any]:
    """Return the trace record of some files. `revision` is the commit whose lines they are, None if they differ from it."""
    files = [{"path": blame.path, "conversations": _to_conversations(blame)} for blame in blames]
    return {
        "version": TRACE_VERSION,
        # The same lines by the same authors are the same record.
        "id": str(uuid.uuid5(uuid.NAMESPACE_URL, encode((revision, files)).decode())),
        "timestamp": datetime.fromtimestamp(now // 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        **({"vcs": {"type": "git", "revision": revision}} if revision else {}),
        "tool": {"name": "weft", "version": VERSION},
        "files": files,
    }


def _to_conversations(blame: FileBlame) -> list[dict[str, Any]]:
    by_key: dict[tuple[str, str, str], list[int]] = {}
    for index, author in enumerate(blame.authors):
        key = (author.kind, author.session_id or "", _name_model(author))
        by_key.setdefault(key, []).append(index)
    conversations: list[dict[str, Any]] = []
    for (kind, session, model), indexes in by_key.items():
        contributor = {"type": _CONTRIBUTORS[kind]} | ({"model_id": model} if model else {})
        ranges = _to_ranges([line for line in blame.lines if line.author in indexes])
        conversation: dict[str, Any] = {"contributor": contributor, "ranges": ranges}
        if session:
            conversation = {"url": f"weft:session/{session}"} | conversation
            conversation["related"] = [
                {"type": "prompt", "url": f"weft:session/{session}/message/{prompt}"}
                for prompt in dict.fromkeys(blame.authors[index].prompt_id for index in indexes)
                if prompt
            ]
        conversations.append(conversation)
    return conversations


def _to_ranges(lines: Sequence[BlameLine]) -> list[dict[str, Any]]:
    blocks: list[list[BlameLine]] = []
    for line in lines:
        if blocks and blocks[-1][-1].number + 1 == line.number:
            blocks[-1].append(line)
        else:
            blocks.append([line])
    return [
        {
            "start_line": block[0].number,
            "end_line": block[-1].number,
            "content_hash": f"sha256:{_hash_lines(block)}",
        }
        for block in blocks
    ]


def _hash_lines(lines: Sequence[BlameLine]) -> str:
    return hashlib.sha256("".join(f"{line.text}\n" for line in lines).encode()).hexdigest()


def _name_model(author: Author) -> str:
    return f"{author.provider_id}/{author.model_id}"[:MAX_MODEL_ID] if author.model_id else ""
