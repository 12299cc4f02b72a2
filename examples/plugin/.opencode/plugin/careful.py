"""Cooler answers, and one command at a time."""

from weft.errors import BlockedError
from weft.plugin.hooks import CallArguments, CallHookInput, ChatParams, ChatRequest, hook


@hook("chat.params")
def cooler(asked: ChatRequest, params: ChatParams) -> ChatParams | None:
    return None if asked.agent == "title" else params.but(temperature=0.2)


@hook("tool.execute.before")
async def one_at_a_time(call: CallHookInput, arguments: CallArguments) -> None:
    if call.tool == "bash" and "&&" in arguments.args.get("command", ""):
        raise BlockedError("One command at a time, please: run them in calls of their own.")
