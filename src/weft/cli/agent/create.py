"""`weft agent create`: write an agent's file."""

import argparse
import json
import os
import re
import sys
from collections.abc import Iterator

from weft.cli.agent.look import find_agents
from weft.errors import ConflictError, DirectoryError, InvalidInputError
from weft.host.paths import paths_from
from weft.model.catalog import parse_ref
from weft.project.look import look

# As OpenCode offers them. Those that write files answer to one permission.
TOOLS = ("bash", "read", "write", "edit", "list", "glob", "grep", "webfetch", "task", "todowrite", "todoread")
EDITING = frozenset({"write", "edit"})
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")


def create_agent(chosen: argparse.Namespace) -> int:
    """Prints the path of the file, and nothing else."""
    if NAME.fullmatch(chosen.name) is None:
        raise InvalidInputError("--name", f"{chosen.name!r} is not one", hint="letters, digits, - and _")
    if not chosen.description.strip():
        raise InvalidInputError("--description", "it is empty", hint="say what the agent is for")
    if chosen.model and parse_ref(chosen.model) is None:
        raise InvalidInputError("--model", f"{chosen.model!r} is not one", hint="write provider/model")
    known = find_agents(chosen.dir, os.environ).get(chosen.name)
    if known is not None and known.native:
        raise ConflictError("agent", chosen.name, "is built in", hint="choose another name")
    given = sys.stdin.read() if chosen.prompt == "-" else chosen.prompt or ""
    prompt = given.strip() or chosen.description.strip()
    front = to_front(chosen.description, chosen.mode, chosen.model, to_off(chosen.tools))
    path = os.path.join(os.path.abspath(chosen.path or _home(chosen.dir)), "agent", f"{chosen.name}.md")
    _write(path, f"---\n{front}---\n\n{prompt}\n")
    print(path)
    return 0


def _home(directory: str) -> str:
    """The checkout's own place for agents; where there is no checkout, the person's."""
    at = look(directory)
    return os.path.join(at.top, ".opencode") if at.top else paths_from(os.environ).config


def to_off(tools: str | None) -> list[str]:
    """The tools that are left out."""
    if tools is None:
        return []
    wanted = {name.strip() for name in tools.split(",") if name.strip()}
    unknown = sorted(wanted - set(TOOLS))
    if unknown:
        raise InvalidInputError(
            "--tools", f"there is no {', '.join(unknown)}", hint=f"there are {', '.join(TOOLS)}"
        )
    if wanted & EDITING:
        wanted |= EDITING
    return [name for name in TOOLS if name not in wanted]


def to_front(description: str, mode: str, model: str | None, off: list[str]) -> str:
    return "".join(f"{line}\n" for line in _front(description, mode, model, off))


def _front(description: str, mode: str, model: str | None, off: list[str]) -> Iterator[str]:
    # A JSON string is a YAML string too, whatever is in it.
    yield f"description: {json.dumps(description.strip(), ensure_ascii=False)}"
    yield f"mode: {mode}"
    if model:
        yield f"model: {json.dumps(model, ensure_ascii=False)}"
    if off:
        yield "tools:"
        yield from (f"  {name}: false" for name in off)


def _write(path: str, text: str) -> None:
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise ConflictError(
            "agent file", path, "is there already", hint="edit it, or choose another name"
        ) from None
    except OSError as error:
        raise DirectoryError(path, error.strerror or str(error)) from error
