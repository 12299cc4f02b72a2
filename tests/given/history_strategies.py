"""Hypothesis strategies for stored histories: complete, interrupted, imported, invalid, and from other models."""

import base64
from decimal import Decimal
from typing import Any

from hypothesis import strategies as st

from weft.model.failure import aborted_failure, unknown_failure
from weft.model.ids import MessageID, PartID, SessionID
from weft.model.message import AssistantMessage, AssistantTime, MessageWithParts, UserMessage
from weft.model.part import (
    AgentPart,
    AnyPart,
    AnyToolState,
    CallTime,
    CompactionPart,
    CompletedState,
    ErrorState,
    FilePart,
    ModelRef,
    Moment,
    PendingState,
    ReasoningPart,
    RunningState,
    Span,
    StepStartPart,
    SubtaskPart,
    TextPart,
    Tokens,
    ToolPart,
    UnknownPart,
)

SESSION = SessionID("ses_any")
PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n" + bytes(24)).decode()
PDF = base64.b64encode(b"%PDF-1.7\n" + bytes(24)).decode()
ENCRYPTED = "gAAAAAB-known"
SIGNATURE = base64.b64encode(b"a thought of gemini").decode()

WORDS = st.sampled_from(["", " ", "hello", "two\n\nparagraphs", "émoji 🙂", "half \ud83d of a pair"])
URLS = st.sampled_from(
    [
        f"data:image/png;base64,{PNG}",
        f"data:image/gif;base64,{PNG}",
        "data:image/png;base64,",
        "data:image/png;base64,!!!!",
        "data:image/png;base64,abc",
        "data:image/svg+xml,%3Csvg%3E",
        f"data:application/pdf;base64,{PDF}",
        "data:audio/wav;base64,UklGRg==",
        "data:text/csv;base64,YSxi",
        "data:,",
        "https://example.com/picture.png",
        "file:///tmp/picture.png",
        "not an address",
    ]
)
MIMES = st.sampled_from(
    [
        "image/png",
        "image/gif",
        "image/svg+xml",
        "application/pdf",
        "audio/wav",
        "text/csv",
        "text/plain",
        "a/b",
        "",
    ]
)
JUNK = st.sampled_from(
    [None, {}, {"openai": None}, {"google": "x"}, {"openai": {"itemId": 3}}, {"x": {"y": 1}}]
)
METADATA = st.one_of(
    JUNK,
    st.sampled_from(
        [
            {"openai": {"itemId": "rs_1", "reasoningEncryptedContent": ENCRYPTED}},
            {"openai": {"itemId": "rs_1"}},
            {"openai": {"itemId": "rs_2", "reasoningEncryptedContent": None}},
            {"openai": {"itemId": "msg_1", "phase": "commentary"}},
            {"openai": {"itemId": "msg_2", "phase": "nonsense"}},
            {"google": {"thoughtSignature": SIGNATURE}},
            {"google": {"thoughtSignature": "not base64!"}},
            {"google": {"thoughtSignature": SIGNATURE, "callId": "fc-1"}},
            {"anthropic": {"signature": "abc"}},
        ]
    ),
)
CALL_IDS = st.sampled_from(["call_1", "call_1", "call_2", "", "x" * 90, "toolu:1/2", "é"])
TOOLS = st.sampled_from(["read", "bash", "", "mcp server.do it!", "9lives", "n" * 80])
INPUTS = st.sampled_from([{}, {"path": "a"}, {"deep": {"er": [1, None, {"x": 1.5}]}}, {"bad": "\udc00"}])
NAMES = st.sampled_from([None, "", "a.png", "b.pdf"])


def _ids(number: int) -> dict[str, Any]:
    return {"id": PartID(f"prt_{number:012x}"), "session_id": SESSION, "message_id": MessageID("msg_any")}


FILES = st.builds(
    lambda url, mime, name: FilePart(**_ids(1), url=url, mime=mime, filename=name), URLS, MIMES, NAMES
)


@st.composite
def states(draw: st.DrawFn) -> AnyToolState:
    given = draw(INPUTS)
    time = CallTime(start=1, end=2, compacted=draw(st.sampled_from([None, None, 3])))
    match draw(st.sampled_from(["completed", "completed", "error", "running", "pending"])):
        case "completed":
            files = tuple(draw(st.lists(FILES, max_size=2))) or None
            return CompletedState(
                input=given, output=draw(WORDS), title="", metadata={}, time=time, attachments=files
            )
        case "error":
            return ErrorState(input=given, error=draw(WORDS), time=time)
        case "running":
            return RunningState(input=given, time=Span(start=1))
        case _:
            return PendingState(input=given, raw="{")


CALLS = st.builds(
    lambda call, tool, state, metadata: ToolPart(
        **_ids(2), call_id=call, tool=tool, state=state, metadata=metadata
    ),
    CALL_IDS,
    TOOLS,
    states(),
    METADATA,
)
TEXTS = st.builds(
    lambda words, ignored, metadata: TextPart(**_ids(3), text=words, ignored=ignored, metadata=metadata),
    WORDS,
    st.booleans(),
    METADATA,
)
THOUGHTS = st.builds(
    lambda words, metadata: ReasoningPart(**_ids(4), text=words, metadata=metadata, time=Span(start=1)),
    WORDS,
    METADATA,
)
OTHERS: st.SearchStrategy[AnyPart] = st.sampled_from(
    [
        StepStartPart(**_ids(5)),
        CompactionPart(**_ids(6), auto=True),
        SubtaskPart(**_ids(7), prompt="p", description="d", agent="a"),
        AgentPart(**_ids(8), name="a"),
        UnknownPart(**_ids(9)),
    ]
)
USER_PARTS = st.lists(st.one_of(TEXTS, FILES, OTHERS), max_size=4)
ASSISTANT_PARTS = st.lists(st.one_of(TEXTS, THOUGHTS, CALLS, OTHERS), max_size=7)


@st.composite
def messages(draw: st.DrawFn, models: tuple[tuple[str, str], ...]) -> MessageWithParts:
    if draw(st.booleans()):
        asked = UserMessage(
            id=MessageID("msg_user"),
            session_id=SESSION,
            time=Moment(created=1),
            agent="build",
            model=ModelRef(provider_id="p", model_id="m"),
        )
        return MessageWithParts(info=asked, parts=tuple(draw(USER_PARTS)))
    provider, model = draw(st.sampled_from(models))
    answered = AssistantMessage(
        id=MessageID("msg_assistant"),
        session_id=SESSION,
        time=AssistantTime(created=1),
        parent_id=MessageID("msg_user"),
        provider_id=provider,
        model_id=model,
        agent="build",
        mode="build",
        error=draw(st.sampled_from([None, None, None, aborted_failure(), unknown_failure("boom")])),
        cost=Decimal(0),
        tokens=Tokens(),
    )
    return MessageWithParts(info=answered, parts=tuple(draw(ASSISTANT_PARTS)))


def histories(*models: tuple[str, str]) -> st.SearchStrategy[list[MessageWithParts]]:
    """Generate histories whose answers came from these models (provider and name)."""
    return st.lists(messages(models), max_size=6)
