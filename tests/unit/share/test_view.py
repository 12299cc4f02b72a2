"""What others see of a session, which secrets are redacted in it, and which items a share server receives."""

from decimal import Decimal
from typing import Any

import pytest
from msgspec.structs import replace

from given.session_exports import AT, export, list_texts, text, turn_of, with_parts, with_text
from weft.errors import InvalidInputError
from weft.model.failure import ApiData, ApiFailure
from weft.model.ids import PartID
from weft.model.message import AssistantMessage, MessageWithParts
from weft.model.part import (
    FilePart,
    PatchPart,
    PendingState,
    ReasoningPart,
    RunningState,
    Span,
    StepFinishPart,
    TextPart,
    Tokens,
    ToolPart,
    WeftStepData,
)
from weft.model.permission import Rule
from weft.model.session import SessionRevert, SessionShare, WeftSessionData
from weft.model.share import ShareItem, ShareTerms
from weft.model.transfer import SessionExport
from weft.model.wire import decode, encode, from_plain, to_plain
from weft.share.items import (
    MAX_BATCH_ITEMS,
    from_items,
    hash_item,
    name_item,
    select_unsent,
    to_batches,
    to_items,
)
from weft.share.view import SessionRedactor, is_busy, to_preview, to_shared_view
from weft.transfer.redact import Redactor

KEY = "sk-ant-api03-aB3dE5fG7hJ9kL1mN2pQ4rS6tU8vW0xY"
PASSWORD = "correct4horse-battery"


def ids_of(message: MessageWithParts) -> dict[str, Any]:
    return {"session_id": message.info.session_id, "message_id": message.info.id}


def with_unfinished_answer(session: SessionExport) -> SessionExport:
    """Return the session with its last answer unfinished."""
    *rest, last = session.messages
    assert isinstance(last.info, AssistantMessage)
    info = replace(last.info, time=replace(last.info.time, completed=None), finish=None)
    return replace(session, messages=(*rest, replace(last, info=info)))


# --- what is shown ---


def test_facts_about_this_machine_are_omitted() -> None:
    session = export(1, directory="/home/ada/loom")
    rules = (Rule(permission="bash", pattern="*", action="allow"),)
    info = replace(session.info, permission=rules, weft=WeftSessionData(notes=("mine",)))
    shown = to_shared_view(replace(session, info=info))
    raw = encode((shown.info, *(message.info for message in shown.messages))).decode()
    assert (shown.info.directory, shown.info.permission, shown.info.weft) == ("loom", None, None)
    assert ("/home/ada" in raw, "mine" in raw) == (False, False)
    assert list_texts(shown.messages) == ["prompt 0", "answer 0"]


def test_data_of_other_frameworks_is_omitted_from_a_share_and_redacted_in_an_export() -> None:
    session = export(1)
    metadata = {"openai-agents": [{"role": "user", "content": f"my key is {KEY}"}]}
    messages = tuple(replace(each, info=replace(each.info, metadata=metadata)) for each in session.messages)
    session = replace(session, messages=messages)
    assert [each.info.metadata for each in to_shared_view(session).messages] == [None] * len(messages)
    redactor = Redactor()
    redactor.scan(session)
    raw = encode(redactor.redact(session)).decode()
    assert (KEY in raw, "openai-agents" in raw) == (False, True)


def test_the_share_secret_that_opencode_leaves_in_a_session_is_not_shown() -> None:
    plain = to_plain(export().info) | {"share": {"id": "1", "url": "https://e.test/s", "secret": "hush"}}
    session = replace(export(), info=decode(encode(plain), type(export().info)))
    assert "hush" in encode(session.info).decode()
    assert to_shared_view(session).info.share == SessionShare(url="https://e.test/s")
    assert "hush" not in encode(to_shared_view(session)).decode()


def test_only_complete_parts_are_shown() -> None:
    session = with_unfinished_answer(export())
    last = session.messages[-1]
    ids = ids_of(last)
    growing = TextPart(id=PartID("prt_g"), **ids, text="half a secr", time=Span(start=AT))
    thinking = ReasoningPart(id=PartID("prt_h"), **ids, text="hm", time=Span(start=AT))
    writing = ToolPart(
        id=PartID("prt_i"), **ids, call_id="1", tool="bash", state=PendingState(input={}, raw="{")
    )
    running = RunningState(input={"command": "ls"}, metadata={"output": "half"}, time=Span(start=AT))
    call = ToolPart(id=PartID("prt_j"), **ids, call_id="2", tool="bash", state=running)
    there = replace(last, parts=(*last.parts, growing, thinking, writing, call))
    shown = to_shared_view(replace(session, messages=(*session.messages[:-1], there))).messages[-1]
    assert [part.id for part in shown.parts] == [*(part.id for part in last.parts), "prt_j"]
    assert shown.parts[-1] == replace(call, state=replace(running, metadata=None))
    assert (is_busy(session), is_busy(export())) == (True, False)


def test_undone_messages_are_not_shown() -> None:
    session = export(1, turns=3)
    third, answer = session.messages[4].info.id, session.messages[3]
    back = replace(session.info, revert=SessionRevert(message_id=third, diff="secret diff", snapshot="x"))
    shown = to_shared_view(replace(session, info=back))
    assert [message.info.id for message in shown.messages] == [each.info.id for each in session.messages[:4]]
    assert "secret diff" not in encode(shown).decode()
    within = SessionRevert(message_id=answer.info.id, part_id=answer.parts[1].id)
    shown = to_shared_view(replace(session, info=replace(session.info, revert=within)))
    assert [part.id for part in shown.messages[-1].parts] == [answer.parts[0].id]


def test_synthetic_text_patches_and_file_paths_are_omitted() -> None:
    first = export().messages[0]
    ids = ids_of(first)
    put_in = TextPart(id=PartID("prt_s"), **ids, text="what was in a file", synthetic=True)
    patch = PatchPart(id=PartID("prt_p"), **ids, hash="x", files=("/home/ada/x",))
    picture = FilePart(
        id=PartID("prt_f"), **ids, mime="image/png", filename="a.png", url="data:image/png;base64,AAAA"
    )
    local = replace(picture, id=PartID("prt_l"), url="file:///home/ada/a.png")
    session = with_parts(export(), put_in, patch, picture, local)
    assert [part.id for part in to_shared_view(session).messages[0].parts][1:] == ["prt_f", "prt_l"]
    assert to_shared_view(session).messages[0].parts[1:] == (picture, replace(local, url=""))
    bare = to_shared_view(session, attachments=False)
    assert bare.messages[0].parts[1] == replace(picture, url="")


def test_the_usage_of_a_step_is_shown_without_the_raw_provider_data() -> None:
    ids = ids_of(export().messages[0])
    used = StepFinishPart(
        id=PartID("prt_u"), **ids, reason="stop", cost=Decimal("0.5"), tokens=Tokens(input=3)
    )
    step = replace(used, weft=WeftStepData(usage={"input_tokens": 3, "account": "ada"}))

    assert to_shared_view(with_parts(export(), step)).messages[0].parts[-1] == used


def test_only_the_message_of_a_failure_is_shown() -> None:
    session = export()
    *rest, last = session.messages
    data = ApiData(
        message="no", is_retryable=False, response_headers={"set-cookie": "x"}, response_body="all of it"
    )
    assert isinstance(last.info, AssistantMessage)
    failed = replace(last, info=replace(last.info, error=ApiFailure(data=data)))
    shown = to_shared_view(replace(session, messages=(*rest, failed))).messages[-1].info
    assert isinstance(shown, AssistantMessage)
    assert shown.error == ApiFailure(data=ApiData(message="no", is_retryable=False))


# --- what is covered ---


def with_answer(session: SessionExport, said: str, number: int = 7) -> SessionExport:
    """Return the session with one more turn and this answer."""
    asked, answered = turn_of(session.info.id, 90_000 + number * 10, number, "/there")
    assert isinstance(answered.info, AssistantMessage)
    part = text(answered.info, 90_000 + number * 10 + 9, said)
    return replace(session, messages=(*session.messages, asked, replace(answered, parts=(part,))))


def test_a_secret_recognised_later_is_redacted_in_earlier_text_too() -> None:
    covering = SessionRedactor()
    before = with_text(export(), f"it was {PASSWORD} I think")
    assert list_texts(covering.redact(before).messages)[0] == f"it was {PASSWORD} I think"
    after = covering.redact(with_answer(before, f'password = "{PASSWORD}"'))
    assert PASSWORD not in encode(after).decode()
    assert list_texts(after.messages)[0] == "it was [redacted:password:1] I think"


def test_redacting_in_pieces_equals_redacting_at_once() -> None:
    covering, session = SessionRedactor(), with_text(export(1, turns=2), f"use {KEY}")
    said = ["nothing", f'token: "{KEY}x9"', "again", f"DB_PASSWORD={PASSWORD}", KEY]
    for number, each in enumerate(said):
        session = with_answer(session, each, number)
        assert covering.redact(session) == SessionRedactor().redact(session)


def test_without_redaction_text_is_unchanged() -> None:
    session = with_text(export(), KEY)
    assert SessionRedactor(redact=False).redact(session) == session


def test_a_preview_reports_what_would_be_redacted_and_reveals_nothing() -> None:
    session = with_answer(with_text(export(), f"use {KEY}"), f"{KEY} and DB_PASSWORD={PASSWORD}")
    session = replace(session, info=replace(session.info, title=f"{KEY}!"))
    preview = to_preview(session, ShareTerms(to="server"))
    assert (preview.to, preview.messages, preview.kinds) == ("server", 4, {"anthropic-key": 1, "password": 1})
    assert [(each.kind, each.times) for each in preview.covered] == [("anthropic-key", 3), ("password", 1)]
    assert (preview.covered[0].where, preview.covered[1].where.split()[0]) == (
        "session",
        session.messages[-1].info.id,
    )
    raw = encode(preview).decode()
    assert (KEY in raw, PASSWORD in raw) == (False, False)


# --- what is sent ---


def test_items_reconstruct_the_session() -> None:
    session = to_shared_view(export(1, turns=3))
    items = to_items(session)
    assert {item.type for item in items.values()} == {"session", "message", "part", "session_diff", "model"}
    sent = [from_plain(to_plain(item), ShareItem) for item in reversed(items.values())]
    assert from_items({name_item(item): item for item in sent}) == session
    assert from_items({}) is None


def test_only_changed_items_are_sent() -> None:
    session = to_shared_view(export(1, turns=2))
    sent = {name: hash_item(item) for name, item in to_items(session).items()}
    assert select_unsent(to_items(session), sent) == {}
    changed = to_items(with_text(session, "other words"))
    assert [item.data["text"] for item in select_unsent(changed, sent).values()] == ["other words"]


def test_removed_parts_are_emptied_once() -> None:
    session = to_shared_view(export(1, turns=2))
    sent = {name: hash_item(item) for name, item in to_items(session).items()}
    cut = replace(session, messages=session.messages[:3])
    fresh = select_unsent(to_items(cut), sent)
    gone = session.messages[3].parts
    assert {item.data["id"]: item.data["text"] for item in fresh.values()} == {part.id: "" for part in gone}
    for item in fresh.values():
        assert name_item(item) in sent
    sent.update({name: hash_item(item) for name, item in fresh.items()})
    assert select_unsent(to_items(cut), sent) == {}


def test_many_items_are_sent_in_several_requests() -> None:
    items = {
        f"part/{number}": ShareItem(type="part", data={"n": number})
        for number in range(2 * MAX_BATCH_ITEMS + 1)
    }
    batches = list(to_batches(items))
    assert [len(batch) for batch in batches] == [MAX_BATCH_ITEMS, MAX_BATCH_ITEMS, 1]
    large = {str(number): ShareItem(type="part", data="x" * 3_000_000) for number in range(3)}
    assert [len(batch) for batch in to_batches(large)] == [1, 1, 1]


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        ("nonsense", {}),
        ("session", {"id": 1}),
        ("message", {"id": "msg_1", "role": "nobody"}),
        ("part", {"type": "text"}),
        ("part", {"type": "text", "id": "../../x", "messageID": "m", "sessionID": "s", "text": ""}),
        ("session_diff", {}),
        ("model", "x"),
    ],
)
def test_an_invalid_received_item_is_refused(kind: str, data: Any) -> None:
    with pytest.raises(InvalidInputError):
        name_item(ShareItem(type=kind, data=data))


def test_parts_without_their_messages_are_left_out() -> None:
    session = to_shared_view(export())
    items = {name: item for name, item in to_items(session).items() if not name.startswith("message/")}
    made = from_items(items)
    assert made is not None
    assert made.messages == ()
