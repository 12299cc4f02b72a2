"""Without plugins, hooks return the very object that they were given."""

from given.engine import MODEL
from weft.context.view import View
from weft.model.event import Event, MessageUpdated
from weft.model.ids import MessageID, Mint, SessionID
from weft.model.message import AssistantMessage, AssistantTime, MessagePath
from weft.plugin.hooks import NO_HOOKS, CallHookInput, ChatRequest
from weft.provider.contract import ModelRequest
from weft.run.hooks import (
    apply_after_hooks,
    apply_before_hooks,
    apply_message_hooks,
    apply_request_hooks,
    apply_text_hooks,
)
from weft.run.processor import Processor
from weft.tool.contract import ToolResult

SESSION = SessionID("ses_1")


async def test_a_request_without_plugins_is_unchanged() -> None:
    request = ModelRequest(model=MODEL, system=("Be good.",), messages=())
    asked = ChatRequest(session_id=SESSION, agent="build", model=MODEL, message=None)
    view = View()
    seen = view.show([], MODEL, plan_files=False)
    assert await apply_request_hooks(NO_HOOKS, request, asked, output_limit=1000) is request
    assert await apply_message_hooks(NO_HOOKS, SESSION, seen, view, MODEL) is seen


async def test_a_call_without_plugins_is_unchanged() -> None:
    told = CallHookInput(tool="echo", session_id=SESSION, call_id="call_1", args={"words": "x"})
    result = ToolResult(title="", output="x")
    call = await apply_before_hooks(NO_HOOKS, told)
    assert call.args is told.args
    assert await apply_after_hooks(NO_HOOKS, call, result) is result


async def test_a_text_without_plugins_is_unchanged() -> None:
    message = AssistantMessage(
        id=MessageID("msg_1"),
        session_id=SESSION,
        time=AssistantTime(created=1),
        parent_id=MessageID("msg_0"),
        model_id="m",
        provider_id="p",
        mode="build",
        agent="build",
        path=MessagePath(cwd="/", root="/"),
    )
    processor = Processor(message, Mint(lambda: 1, bytes), lambda: 1)
    ended: list[Event] = [MessageUpdated(info=message)]
    assert await apply_text_hooks(NO_HOOKS, processor, ended) is ended
