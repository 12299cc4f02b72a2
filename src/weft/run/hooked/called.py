"""Calls as plugins would have them: with which arguments, and what came of them.

What the model wrote stays in the history, whatever a call was made with: a request must begin like the one before it.
The arguments it was made with stand beside what came of it, for whoever reads that later.
"""

from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from weft.model.ids import SessionID
from weft.plugin.hooks import TOOL_AFTER, TOOL_BEFORE, CallArguments, CallOutcome, CallTold, Hooks
from weft.run.processor import CallStarted
from weft.tool.contract import ToolResult
from weft.tool.truncate import cut

OWN: Final = "weft"
BOUNDED: Final = "truncated"


class HookedCall(Struct, frozen=True, kw_only=True):
    """A call as it is made: `args` differ from what the model wrote if a plugin said so."""

    told: CallTold
    args: dict[str, Any]

    @property
    def changed(self) -> bool:
        return self.args != self.told.args


def to_told(call: CallStarted, session: SessionID) -> CallTold:
    return CallTold(tool=call.tool, session_id=session, call_id=call.call_id, args=call.input)


async def before(hooks: Hooks, told: CallTold) -> HookedCall:
    """The call as it is to be made. Raises `BlockedError` if it is not."""
    if not hooks.any(TOOL_BEFORE):
        return HookedCall(told=told, args=told.args)
    given = await hooks.ask(TOOL_BEFORE, told, CallArguments(args=told.args))
    return HookedCall(told=told, args=given.args)


async def after(hooks: Hooks, call: HookedCall, result: ToolResult) -> ToolResult:
    """What came of it as the model reads it. It is yet to be bounded: also a plugin may say too much."""
    if hooks.any(TOOL_AFTER):
        result = await _retold(hooks, call, result)
    if call.changed:
        result = replace(result, metadata={**result.metadata, OWN: {"args": call.args}})
    return result


async def _retold(hooks: Hooks, call: HookedCall, result: ToolResult) -> ToolResult:
    now = CallOutcome(title=result.title, output=result.output, metadata=result.metadata)
    given = await hooks.ask(TOOL_AFTER, replace(call.told, args=call.args), now)
    metadata = given.metadata
    if given.output != result.output and cut(given.output).left:
        # The tool saw to it that its output was no longer than it may be; this is another.
        metadata = {key: value for key, value in metadata.items() if key != BOUNDED}
    return replace(result, title=given.title, output=given.output, metadata=metadata)
