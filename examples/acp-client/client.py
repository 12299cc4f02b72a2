"""A small editor: opens a session of `weft acp`, sends one prompt, shows what comes of it, and answers when asked.

    python client.py DIRECTORY PROMPT... [--yes]

It needs the protocol's package: in weft's checkout, pip install '.[acp]'. Without `--yes`, every permission request is refused.
"""

import argparse
import asyncio
import os
import shutil
import sys
from pathlib import Path
from typing import Any, cast

from acp import PROTOCOL_VERSION, Client, spawn_agent_process, text_block
from acp.schema import (
    AgentMessageChunk,
    AgentThoughtChunk,
    AllowedOutcome,
    FileEditToolCallContent,
    PermissionOption,
    RequestPermissionResponse,
    ToolCallProgress,
    ToolCallStart,
    ToolCallUpdate,
)


class Editor:
    """What an agent calls on an editor: two things are enough."""

    def __init__(self, *, yes: bool) -> None:
        self._kind = "allow_once" if yes else "reject_once"
        self._titles: dict[str, str] = {}

    def on_connect(self, agent: Any) -> None:
        pass

    async def session_update(self, update: Any, **_: Any) -> None:
        match update:
            case AgentMessageChunk():
                print(update.content.text, end="", flush=True)
            case AgentThoughtChunk():
                print(update.content.text, end="", file=sys.stderr, flush=True)
            case ToolCallStart() | ToolCallProgress():
                self._show(update)
            case _:
                pass

    async def request_permission(
        self, tool_call: ToolCallUpdate, options: list[PermissionOption], **_: Any
    ) -> RequestPermissionResponse:
        chosen = next(option for option in options if option.kind == self._kind)
        print(f"\n? {tool_call.title}: {chosen.name}", flush=True)
        return RequestPermissionResponse(
            outcome=AllowedOutcome(outcome="selected", option_id=chosen.option_id)
        )

    def _show(self, call: ToolCallStart | ToolCallProgress) -> None:
        title = call.title or self._titles.get(call.tool_call_id, "")
        self._titles[call.tool_call_id] = title
        if call.status in ("completed", "failed"):
            print(f"\n[{call.status}] {title}", flush=True)
            for change in call.content or []:
                if isinstance(change, FileEditToolCallContent):
                    before, after = (
                        len((change.old_text or "").splitlines()),
                        len(change.new_text.splitlines()),
                    )
                    print(f"    {change.path}: {before} lines before, {after} after", flush=True)


async def run(chosen: argparse.Namespace) -> str:
    # The protocol has methods for files and terminals, too; an editor that does not offer these is never asked for them.
    editor = cast("Client", Editor(yes=chosen.yes))
    weft = shutil.which("weft") or str(Path(sys.executable).with_name("weft"))
    # Standard error is left to the terminal: whoever pipes it away has to read it, or the agent waits.
    spawned = spawn_agent_process(editor, weft, "acp", env=os.environ, transport_kwargs={"stderr": None})
    async with spawned as (agent, _):
        await agent.initialize(protocol_version=PROTOCOL_VERSION)
        session = await agent.new_session(cwd=chosen.directory, mcp_servers=[])
        answer = await agent.prompt(
            session_id=session.session_id, prompt=[text_block(" ".join(chosen.prompt))]
        )
    return answer.stop_reason


def main() -> int:
    parser = argparse.ArgumentParser(description="A small editor for weft acp.")
    parser.add_argument("directory", type=os.path.abspath)
    parser.add_argument("prompt", nargs="+")
    parser.add_argument("--yes", action="store_true", help="allow what is asked for, once each time")
    reason = asyncio.run(run(parser.parse_args()))
    print(f"\nended: {reason}")
    return 0 if reason == "end_turn" else 1


if __name__ == "__main__":
    sys.exit(main())
