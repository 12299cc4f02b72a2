"""A call that another machine left open is not judged by the files of this one. Its stored result counts."""

from msgspec.structs import replace

from given.conversation import assistant_message, tool_part
from given.engine import ALLOW, open_engine, text_prompt
from weft.model.event import MessageUpdated, PartUpdated
from weft.model.input import SessionInput
from weft.model.part import CompletedState, ErrorState, RunningState, Span, ToolPart
from weft.model.verdict import CallEvidence, CallResult, CommandTrace, FileIntent, with_evidence
from weft.provider.scripted import Say
from weft.session.verdict import ELSEWHERE
from weft.store.memory import MemoryStore

FILES = CallEvidence(machine="another", files=(FileIntent(path="/nowhere/a.txt"),))
ENDED = CallEvidence(
    machine="another", command=CommandTrace(token="0" * 32), result=CallResult(output="done")
)


async def settle(tool: str, evidence: CallEvidence) -> CompletedState | ErrorState:
    """Let one node settle a call that another left."""
    async with open_engine([Say(text="I see.")], store=MemoryStore(), rules=ALLOW) as engine:
        session = (await engine.api.create_session(SessionInput(title="t"))).id
        await engine.api.prompt(session, text_prompt("begin", no_reply=True))
        prompt = (await engine.api.list_messages(session))[0].info
        info = replace(assistant_message("msg_left", prompt.time.created, prompt.id).info, session_id=session)
        running = RunningState(input={}, metadata=with_evidence(None, evidence), time=Span(start=1))
        part = replace(tool_part("A1", 1, tool), state=running, session_id=session, message_id=info.id)
        await engine.store.apply(MessageUpdated(info=info), PartUpdated(part=part))
        await engine.api.prompt(session, text_prompt("go on"))
        (left,) = [
            part
            for message in await engine.api.list_messages(session)
            for part in message.parts
            if isinstance(part, ToolPart)
        ]
    assert isinstance(left.state, CompletedState | ErrorState)
    return left.state


async def test_files_of_another_machine_are_no_evidence() -> None:
    state = await settle("write", FILES)
    assert isinstance(state, ErrorState)
    assert state.error.endswith(ELSEWHERE)


async def test_a_result_in_the_store_is_recorded_wherever_the_call_ran() -> None:
    state = await settle("bash", ENDED)
    assert isinstance(state, CompletedState)
    assert state.output.startswith("done\n")
