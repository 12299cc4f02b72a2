"""The rule for wire names, and that documents are decoded and encoded without loss or risk."""

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET
from msgspec.structs import fields, replace

from weft.errors import DocumentError
from weft.model.agent import AgentInfo
from weft.model.catalog import Model
from weft.model.failure import OtherFailure
from weft.model.ids import MessageID, PartID, SessionID
from weft.model.message import AnyMessage, AssistantMessage, MessageWithParts
from weft.model.part import AnyPart, FilePart, StepFinishPart, TextPart, Tokens, UnknownPart
from weft.model.permission import PermissionRequest
from weft.model.project import Project
from weft.model.session import AnyStatus, SessionInfo
from weft.model.wire import (
    Wire,
    decode,
    encode,
    encode_many,
    encode_pretty,
    from_plain,
    parse,
    to_plain,
    wire_name,
)

GOLDEN = Path(__file__).parent / "documents"
TEXT = {"type": "text", "id": "prt_1", "sessionID": "ses_1", "messageID": "msg_1", "text": "a"}
HALF = "\ud83d"  # half a surrogate pair: JavaScript writes it as an escape when it cuts an emoji in two


def golden(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((GOLDEN / f"{name}.json").read_bytes())
    return found


def exactly(raw: bytes) -> Any:
    return json.loads(raw, parse_float=Decimal)


def again(raw: bytes, kind: Any = AnyPart) -> Any:
    """Return a document after decoding and encoding, compact and as on disk (which must agree)."""
    value = decode(raw, kind)
    assert exactly(encode(value)) == exactly(encode_pretty(value))
    return exactly(encode(value))


def survives(document: dict[str, Any], kind: Any = AnyPart) -> bool:
    raw = json.dumps(document).encode()
    return bool(again(raw, kind) == exactly(raw))


# --- names ---


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ("id", "id"),
        ("session_id", "sessionID"),
        ("is_retryable", "isRetryable"),
        ("response_headers", "responseHeaders"),
        ("parent_id", "parentID"),
        ("top_p", "topP"),
        ("from_", "from"),
        ("extra_", "$extra"),
    ],
)
def test_wire_names_follow_one_rule(ours: str, theirs: str) -> None:
    assert wire_name(ours) == theirs


# --- what we do not know ---


def test_unknown_fields_survive_at_three_levels() -> None:
    document = golden("part/tool-completed-attachment")
    document["new"] = {"a": [1, None]}
    document["state"]["new"] = [1.5, "b"]
    document["state"]["time"]["new"] = True
    document["state"]["attachments"][0]["new"] = {"deep": {"deeper": []}}
    assert survives(document)


def test_an_unknown_field_survives_a_change_of_what_we_know() -> None:
    part = decode(json.dumps({**TEXT, "new": [1]}).encode(), AnyPart)
    assert to_plain(replace(part, text="b")) == {**TEXT, "text": "b", "new": [1]}


def test_what_we_know_wins_over_what_was_carried() -> None:
    carried = TextPart(
        id=PartID("prt_1"),
        session_id=SessionID("ses_1"),
        message_id=MessageID("msg_1"),
        text="ours",
        extra_={"text": "theirs"},
    )
    assert json.loads(encode(carried))["text"] == "ours"


def test_a_document_without_unknown_fields_carries_nothing() -> None:
    assert decode(json.dumps(TEXT).encode(), AnyPart).extra_ is UNSET
    assert from_plain(TEXT, AnyPart).extra_ is UNSET


def test_a_part_of_an_unknown_type_is_kept_as_it_came() -> None:
    document = {**TEXT, "type": "hologram", "beam": {"text": 1}}
    part = decode(json.dumps(document).encode(), AnyPart)
    assert isinstance(part, UnknownPart)
    assert (part.id, part.message_id) == ("prt_1", "msg_1")
    assert survives(document)


def test_an_unknown_source_and_an_unknown_failure_keep_their_names() -> None:
    assert survives(
        {**golden("part/file-image"), "source": {"type": "web", "text": {"value": "@", "start": 0, "end": 1}}}
    )
    failed = {
        **golden("message/assistant"),
        "error": {"name": "ContextOverflowError", "data": {"a": 1}, "b": 2},
    }
    message = decode(json.dumps(failed).encode(), AnyMessage)
    assert isinstance(message, AssistantMessage)
    assert isinstance(message.error, OtherFailure)
    assert survives(failed, AnyMessage)


def test_a_part_that_calls_itself_by_our_name_for_the_unknown_stays_what_it_is() -> None:
    assert survives({**TEXT, "type": "$unknown"})
    assert survives({**golden("message/assistant"), "error": {"name": "$other"}}, AnyMessage)


def test_a_part_without_a_type_is_no_part() -> None:
    with pytest.raises(DocumentError, match="type"):
        decode(b'{"id":"prt_1","sessionID":"ses_1","messageID":"msg_1","text":"a"}', AnyPart)


def test_an_unknown_role_is_refused_because_history_would_be_sent_wrongly() -> None:
    with pytest.raises(DocumentError, match="role"):
        decode(json.dumps({**golden("message/user"), "role": "narrator"}).encode(), AnyMessage)


@pytest.mark.parametrize("held", [{"a": 1}, 5, None, [], {"$extra": {"$extra": 1}}])
def test_a_key_with_the_name_we_use_ourselves_is_a_key_like_any_other(held: Any) -> None:
    assert survives({**TEXT, "$extra": held})
    assert survives({**TEXT, "$extra": held, "metadata": {"$extra": held, "list": [{"$extra": held}]}})
    assert survives({**TEXT, "new": {"$extra": held}})
    assert survives({**TEXT, "text": "$extra"})


def test_spelling_that_key_with_escapes_makes_no_difference() -> None:
    for key in (b"\\u0024extra", b"$\\u0065xtra", b"$ext\\u0072a"):
        raw = json.dumps(TEXT).encode()[:-1] + b',"' + key + b'":{"text":"theirs"}}'
        assert again(raw) == {**TEXT, "$extra": {"text": "theirs"}}


SHAPES: dict[str, Any] = {
    "agent/build": AgentInfo,
    "message-with-parts/one": MessageWithParts,
    "message/assistant-failed-api": AnyMessage,
    "message/user-with-everything": AnyMessage,
    "model/sonnet": Model,
    "part/file": AnyPart,
    "part/file-symbol": AnyPart,
    "part/reasoning": AnyPart,
    "part/retry": AnyPart,
    "part/step-finish": AnyPart,
    "part/subtask": AnyPart,
    "part/text": AnyPart,
    "part/tool-completed-attachment": AnyPart,
    "part/tool-error": AnyPart,
    "part/tool-running": AnyPart,
    "permission/request": PermissionRequest,
    "project/git": Project,
    "session/with-everything": SessionInfo,
    "status/retry": AnyStatus,
}
ANY_TEXT = st.text(st.characters(exclude_categories=()), max_size=8)  # halves of surrogate pairs among them
ANY_JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from(["$extra", "text", "type", ""])
    | ANY_TEXT,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.just("$extra") | ANY_TEXT, inner, max_size=3)
    ),
    max_leaves=8,
)


def structs(of: type[Wire] = Wire) -> set[type[Wire]]:
    return {of}.union(*(structs(each) for each in of.__subclasses__()))


KNOWN = {field.encode_name for struct in structs() for field in fields(struct)} - {"$extra"} | {
    "type",
    "role",
}
TYPED_MAPS = {"tools", "headers", "responseHeaders", "variants"}


def objects(document: dict[str, Any]) -> list[dict[str, Any]]:
    """Yield every object in a document that may have unknown fields."""
    inside = [item for key, item in document.items() if isinstance(item, dict) and key not in TYPED_MAPS]
    if "isRetryable" in document:
        inside.clear()  # what an API error carries are maps of strings
    return [document, *(found for item in inside for found in objects(item))]


@given(
    st.sampled_from(sorted(SHAPES)),
    st.dictionaries(ANY_TEXT.filter(lambda key: key not in KNOWN), ANY_JSON, min_size=1, max_size=3),
    st.data(),
)
def test_anything_at_all_added_anywhere_to_a_document_survives(
    name: str, added: dict[str, Any], data: st.DataObject
) -> None:
    document = golden(name)
    data.draw(st.sampled_from(objects(document))).update(added)
    assert survives(document, SHAPES[name])


@given(st.binary(max_size=200) | ANY_TEXT.map(lambda text: text.encode("utf-8", "surrogatepass")))
def test_bytes_that_are_no_document_raise_a_document_error_and_nothing_else(raw: bytes) -> None:
    with pytest.raises(DocumentError):
        decode(raw, AnyPart)


# --- odd text ---


@pytest.mark.parametrize(
    "odd", [HALF, f"a{HALF}b", "\udc00", "\x00", "\x1b[0m", "\u2028", "\ufeff", "🧵", "é"]
)
def test_odd_characters_survive_as_text_as_key_and_in_free_places(odd: str) -> None:
    assert survives({**TEXT, "text": odd, "metadata": {odd: [odd]}, odd: {odd: odd}})


def test_many_values_are_encoded_like_each() -> None:
    here: Any = {"session_id": SessionID("ses_1"), "message_id": MessageID("msg_1")}
    plain = [TextPart(id=PartID("prt_1"), **here, text=text) for text in ("", "a\nb", '"$extra"', "$")]
    unknown = decode(encode(plain[0])[:-1] + b',"later":{"a":1}}', AnyPart)
    half = replace(plain[0], text="\ud800")
    for values in ([], plain, [*plain, unknown], [half, *plain, unknown]):
        assert encode_many(values) == [encode(value) for value in values]
    assert encode_pretty(half, compact=encode(half)) == encode_pretty(half)


def test_what_is_not_utf8_is_refused_by_name() -> None:
    with pytest.raises(DocumentError, match="a file: not JSON"):
        decode(json.dumps(TEXT).encode().replace(b'"a"', b'"\xff"'), AnyPart, where="a file")


# --- numbers ---


def test_integers_stay_integers_however_big() -> None:
    raw = json.dumps({**TEXT, "new": 2**200, "time": {"start": 1736500000000}}).encode()
    assert decode(raw, AnyPart).time.start == 1736500000000
    assert str(2**200) in encode(decode(raw, AnyPart)).decode()
    assert survives(json.loads(raw))


def test_a_time_that_came_as_a_float_is_an_integer() -> None:
    raw = json.dumps({**TEXT, "time": {"start": 1000.0}, "new": 1.0}).encode()
    assert encode(decode(raw, AnyPart)) == encode(decode(raw.replace(b"1000.0", b"1000"), AnyPart))


FINISH = golden("part/step-finish")


@pytest.mark.parametrize("cost", ["0", "3", "0.1", "0.0123456", "1e-7", "0.12345678901234567890123", "1e400"])
@pytest.mark.parametrize("more", ["", ',"new":1', ',"new":"\\ud83d"', ',"new":0.12345678901234567890123'])
def test_money_is_exact_whatever_else_the_document_holds(cost: str, more: str) -> None:
    raw = json.dumps({**FINISH, "cost": 77}).replace("77", cost)[:-1].encode() + more.encode() + b"}"
    part = decode(raw, AnyPart)
    assert isinstance(part, StepFinishPart)
    assert part.cost == Decimal(cost)
    assert again(raw) == exactly(raw)


def test_a_number_beyond_all_numbers_is_refused() -> None:
    for key in ("cost", "new"):
        raw = json.dumps({**FINISH, key: 77}).replace("77", "1e99999999999999999999").encode()
        with pytest.raises(DocumentError, match="1e99999999999999999999"):
            decode(raw, AnyPart)


@pytest.mark.parametrize("raw", [b"NaN", b"Infinity", b"-Infinity"])
def test_an_invalid_json_number_is_refused(raw: bytes) -> None:
    with pytest.raises(DocumentError, match="is not a JSON number"):
        parse(raw)


# --- depth ---


@pytest.mark.parametrize("depth", [1_100, 100_000])
@pytest.mark.parametrize("key", ["new", "metadata", "text"])
def test_a_document_nested_too_deeply_is_refused_and_nobody_falls_over(depth: int, key: str) -> None:
    nest = b'{"a":' * depth + b"1" + b"}" * depth
    raw = json.dumps({**TEXT, key: 77}).encode().replace(b"77", nest)
    with pytest.raises(DocumentError):
        decode(raw, AnyPart)


def test_what_can_be_read_and_is_too_deep_to_be_written_says_so() -> None:
    nest = b"[" * 900 + b"]" * 900
    raw = json.dumps({**TEXT, "text": HALF, "metadata": {"a": 77}}).encode().replace(b"77", nest)
    deep = decode(raw, AnyPart)
    for write in (encode, encode_pretty):
        with pytest.raises(DocumentError, match="TextPart: nested too deeply"):
            write(deep)


def test_a_document_of_sane_depth_survives_with_everything_odd_in_it() -> None:
    nest: Any = HALF
    for _ in range(100):
        nest = {"$extra": [nest]}
    assert survives({**TEXT, "metadata": {"a": nest}, "new": nest})


# --- defaults, nulls, wrong types ---


def test_what_a_document_always_carries_is_written_even_when_it_is_the_default() -> None:
    assert json.loads(encode(Tokens())) == {
        "input": 0,
        "output": 0,
        "reasoning": 0,
        "cache": {"read": 0, "write": 0},
    }
    assert to_plain(Tokens()) == json.loads(encode(Tokens()))


def test_a_default_that_could_be_changed_is_nobody_elses() -> None:
    one, other = AgentInfo(name="a", mode="all"), AgentInfo(name="b", mode="all")
    one.options["loom"] = 1
    assert other.options == {}


def test_an_explicit_null_reads_as_absent_where_absence_is_allowed() -> None:
    part = decode(json.dumps({**TEXT, "time": None, "metadata": None}).encode(), AnyPart)
    assert part == decode(json.dumps(TEXT).encode(), AnyPart)
    assert json.loads(encode(part)) == TEXT


@pytest.mark.parametrize(
    ("changed", "path"),
    [
        ({"text": None}, r"\$\.text"),
        ({"text": 5}, r"\$\.text"),
        ({"time": {"start": "now"}}, r"\$\.time\.start"),
        ({"time": {"start": 1.5}}, r"\$\.time\.start"),
        ({"metadata": []}, r"\$\.metadata"),
        ({"id": {}}, r"\$\.id"),
        ({"new": 1, "synthetic": "yes"}, r"\$\.synthetic"),
    ],
)
def test_a_wrong_type_names_the_place(changed: dict[str, Any], path: str) -> None:
    with pytest.raises(DocumentError, match=rf"prt_1\.json: .*{path}") as caught:
        decode(json.dumps({**TEXT, **changed}).encode(), AnyPart, where="prt_1.json")
    assert caught.value.where == "prt_1.json"


def test_a_missing_field_is_named() -> None:
    with pytest.raises(DocumentError, match="callID"):
        decode(json.dumps({**TEXT, "type": "tool"}).encode(), AnyPart)


def test_a_field_twice_counts_as_the_last_as_in_javascript() -> None:
    raw = json.dumps(TEXT).encode()[:-1] + b',"text":"b"}'
    assert decode(raw, AnyPart).text == "b"


def test_a_document_in_any_order_is_the_same_document() -> None:
    turned = dict(reversed({**golden("part/file"), "new": 1}.items()))
    assert isinstance(decode(json.dumps(turned).encode(), AnyPart), FilePart)
    assert survives(turned)
