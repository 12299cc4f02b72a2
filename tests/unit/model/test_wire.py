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
from weft.model.spending import Budget
from weft.model.wire import (
    Wire,
    decode,
    encode,
    encode_many,
    encode_pretty,
    encode_sorted,
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


def parse_exactly(raw: bytes) -> Any:
    return json.loads(raw, parse_float=Decimal)


def decode_and_encode(raw: bytes, kind: Any = AnyPart) -> Any:
    """Return a document after decoding and encoding, compact and as on disk (which must agree)."""
    value = decode(raw, kind)
    assert parse_exactly(encode(value)) == parse_exactly(encode_pretty(value))
    return parse_exactly(encode(value))


def is_unchanged(document: dict[str, Any], kind: Any = AnyPart) -> bool:
    raw = json.dumps(document).encode()
    return bool(decode_and_encode(raw, kind) == parse_exactly(raw))


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


# --- unknown fields and types ---


def test_unknown_fields_survive_at_three_levels() -> None:
    document = golden("part/tool-completed-attachment")
    document["new"] = {"a": [1, None]}
    document["state"]["new"] = [1.5, "b"]
    document["state"]["time"]["new"] = True
    document["state"]["attachments"][0]["new"] = {"deep": {"deeper": []}}
    assert is_unchanged(document)


def test_an_unknown_field_survives_a_change_of_known_fields() -> None:
    part = decode(json.dumps({**TEXT, "new": [1]}).encode(), AnyPart)
    assert to_plain(replace(part, text="b")) == {**TEXT, "text": "b", "new": [1]}


def test_a_known_field_wins_over_an_unknown_one_of_the_same_name() -> None:
    carried = TextPart(
        id=PartID("prt_1"),
        session_id=SessionID("ses_1"),
        message_id=MessageID("msg_1"),
        text="ours",
        extra_={"text": "theirs"},
    )
    assert json.loads(encode(carried))["text"] == "ours"


def test_a_document_without_unknown_fields_stores_no_extra_fields() -> None:
    assert decode(json.dumps(TEXT).encode(), AnyPart).extra_ is UNSET
    assert from_plain(TEXT, AnyPart).extra_ is UNSET


def test_a_part_of_an_unknown_type_is_kept_unchanged() -> None:
    document = {**TEXT, "type": "hologram", "beam": {"text": 1}}
    part = decode(json.dumps(document).encode(), AnyPart)
    assert isinstance(part, UnknownPart)
    assert (part.id, part.message_id) == ("prt_1", "msg_1")
    assert is_unchanged(document)


def test_an_unknown_source_and_an_unknown_failure_keep_their_names() -> None:
    assert is_unchanged(
        {**golden("part/file-image"), "source": {"type": "web", "text": {"value": "@", "start": 0, "end": 1}}}
    )
    failed = {
        **golden("message/assistant"),
        "error": {"name": "ContextOverflowError", "data": {"a": 1}, "b": 2},
    }
    message = decode(json.dumps(failed).encode(), AnyMessage)
    assert isinstance(message, AssistantMessage)
    assert isinstance(message.error, OtherFailure)
    assert is_unchanged(failed, AnyMessage)


def test_a_part_whose_type_is_our_marker_for_unknown_types_is_kept() -> None:
    assert is_unchanged({**TEXT, "type": "$unknown"})
    assert is_unchanged({**golden("message/assistant"), "error": {"name": "$other"}}, AnyMessage)


def test_a_part_without_a_type_is_refused() -> None:
    with pytest.raises(DocumentError, match="type"):
        decode(b'{"id":"prt_1","sessionID":"ses_1","messageID":"msg_1","text":"a"}', AnyPart)


def test_an_unknown_role_is_refused() -> None:
    with pytest.raises(DocumentError, match="role"):
        decode(json.dumps({**golden("message/user"), "role": "narrator"}).encode(), AnyMessage)


@pytest.mark.parametrize("held", [{"a": 1}, 5, None, [], {"$extra": {"$extra": 1}}])
def test_a_key_with_our_internal_name_survives(held: Any) -> None:
    assert is_unchanged({**TEXT, "$extra": held})
    assert is_unchanged({**TEXT, "$extra": held, "metadata": {"$extra": held, "list": [{"$extra": held}]}})
    assert is_unchanged({**TEXT, "new": {"$extra": held}})
    assert is_unchanged({**TEXT, "text": "$extra"})


def test_an_escaped_key_with_our_internal_name_survives() -> None:
    for key in (b"\\u0024extra", b"$\\u0065xtra", b"$ext\\u0072a"):
        raw = json.dumps(TEXT).encode()[:-1] + b',"' + key + b'":{"text":"theirs"}}'
        assert decode_and_encode(raw) == {**TEXT, "$extra": {"text": "theirs"}}


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
def test_any_value_added_anywhere_in_a_document_survives(
    name: str, added: dict[str, Any], data: st.DataObject
) -> None:
    document = golden(name)
    data.draw(st.sampled_from(objects(document))).update(added)
    assert is_unchanged(document, SHAPES[name])


@given(
    st.sampled_from(sorted(SHAPES)),
    st.dictionaries(ANY_TEXT.filter(lambda key: key not in KNOWN), ANY_JSON, max_size=2),
)
def test_sorted_encoding_differs_only_in_the_order_of_keys(name: str, added: dict[str, Any]) -> None:
    value = decode(json.dumps(golden(name) | added).encode(), SHAPES[name])
    found = encode_sorted(value)
    assert parse(found) == parse(encode(value))
    keys: list[list[str]] = []
    json.loads(found, object_pairs_hook=lambda pairs: keys.append([key for key, _ in pairs]))
    assert all(each == sorted(each) for each in keys)


@given(st.binary(max_size=200) | ANY_TEXT.map(lambda text: text.encode("utf-8", "surrogatepass")))
def test_invalid_bytes_raise_a_document_error_and_nothing_else(raw: bytes) -> None:
    with pytest.raises(DocumentError):
        decode(raw, AnyPart)


# --- odd text ---


@pytest.mark.parametrize(
    "odd", [HALF, f"a{HALF}b", "\udc00", "\x00", "\x1b[0m", "\u2028", "\ufeff", "🧵", "é"]
)
def test_unusual_characters_survive_as_text_as_keys_and_in_free_form_values(odd: str) -> None:
    assert is_unchanged({**TEXT, "text": odd, "metadata": {odd: [odd]}, odd: {odd: odd}})


def test_encoding_many_values_equals_encoding_each() -> None:
    here: Any = {"session_id": SessionID("ses_1"), "message_id": MessageID("msg_1")}
    plain = [TextPart(id=PartID("prt_1"), **here, text=text) for text in ("", "a\nb", '"$extra"', "$")]
    unknown = decode(encode(plain[0])[:-1] + b',"later":{"a":1}}', AnyPart)
    half = replace(plain[0], text="\ud800")
    for values in ([], plain, [*plain, unknown], [half, *plain, unknown]):
        assert encode_many(values) == [encode(value) for value in values]
    assert encode_pretty(half, compact=encode(half)) == encode_pretty(half)


def test_text_that_is_not_utf8_is_refused_with_its_name() -> None:
    with pytest.raises(DocumentError, match="a file: not JSON"):
        decode(json.dumps(TEXT).encode().replace(b'"a"', b'"\xff"'), AnyPart, where="a file")


# --- numbers ---


def test_large_integers_stay_integers() -> None:
    raw = json.dumps({**TEXT, "new": 2**200, "time": {"start": 1736500000000}}).encode()
    assert decode(raw, AnyPart).time.start == 1736500000000
    assert str(2**200) in encode(decode(raw, AnyPart)).decode()
    assert is_unchanged(json.loads(raw))


def test_a_time_given_as_a_float_is_read_as_an_integer() -> None:
    raw = json.dumps({**TEXT, "time": {"start": 1000.0}, "new": 1.0}).encode()
    assert encode(decode(raw, AnyPart)) == encode(decode(raw.replace(b"1000.0", b"1000"), AnyPart))


FINISH = golden("part/step-finish")


@pytest.mark.parametrize("cost", ["0", "3", "0.1", "0.0123456", "1e-7", "0.12345678901234567890123", "1e400"])
@pytest.mark.parametrize("more", ["", ',"new":1', ',"new":"\\ud83d"', ',"new":0.12345678901234567890123'])
def test_costs_are_exact_whatever_else_the_document_contains(cost: str, more: str) -> None:
    raw = json.dumps({**FINISH, "cost": 77}).replace("77", cost)[:-1].encode() + more.encode() + b"}"
    part = decode(raw, AnyPart)
    assert isinstance(part, StepFinishPart)
    assert part.cost == Decimal(cost)
    assert decode_and_encode(raw) == parse_exactly(raw)


def test_a_number_out_of_range_is_refused() -> None:
    for key in ("cost", "new"):
        raw = json.dumps({**FINISH, key: 77}).replace("77", "1e99999999999999999999").encode()
        with pytest.raises(DocumentError, match="1e99999999999999999999"):
            decode(raw, AnyPart)


@pytest.mark.parametrize("cost", ['"NaN"', '"-sNaN123"', '"inf"', '"-Infinity"'])
def test_a_text_that_is_no_json_number_is_refused_as_a_cost(cost: str) -> None:
    raw = json.dumps({**FINISH, "cost": 77}).replace("77", cost).encode()
    with pytest.raises(DocumentError, match="is not a JSON number"):
        decode(raw, AnyPart)
    with pytest.raises(DocumentError, match="is not a JSON number"):
        decode(f'{{"cost":{cost}}}'.encode(), Budget)


@pytest.mark.parametrize("raw", [b"NaN", b"Infinity", b"-Infinity"])
def test_an_invalid_json_number_is_refused(raw: bytes) -> None:
    with pytest.raises(DocumentError, match="is not a JSON number"):
        parse(raw)


# --- depth ---


@pytest.mark.parametrize("depth", [1_100, 100_000])
@pytest.mark.parametrize("key", ["new", "metadata", "text"])
def test_a_deeply_nested_document_is_refused_without_a_crash(depth: int, key: str) -> None:
    nest = b'{"a":' * depth + b"1" + b"}" * depth
    raw = json.dumps({**TEXT, key: 77}).encode().replace(b"77", nest)
    with pytest.raises(DocumentError):
        decode(raw, AnyPart)


def test_a_document_too_deep_to_write_raises_an_error() -> None:
    nest = b"[" * 900 + b"]" * 900
    raw = json.dumps({**TEXT, "text": HALF, "metadata": {"a": 77}}).encode().replace(b"77", nest)
    deep = decode(raw, AnyPart)
    for write in (encode, encode_pretty):
        with pytest.raises(DocumentError, match="TextPart: nested too deeply"):
            write(deep)


def test_a_nested_document_with_unusual_values_survives() -> None:
    nest: Any = HALF
    for _ in range(100):
        nest = {"$extra": [nest]}
    assert is_unchanged({**TEXT, "metadata": {"a": nest}, "new": nest})


# --- defaults, nulls, wrong types ---


def test_required_fields_are_written_even_if_they_have_the_default() -> None:
    assert json.loads(encode(Tokens())) == {
        "input": 0,
        "output": 0,
        "reasoning": 0,
        "cache": {"read": 0, "write": 0},
    }
    assert to_plain(Tokens()) == json.loads(encode(Tokens()))


def test_mutable_defaults_are_not_shared() -> None:
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
def test_a_wrong_type_is_reported_with_its_path(changed: dict[str, Any], path: str) -> None:
    with pytest.raises(DocumentError, match=rf"prt_1\.json: .*{path}") as caught:
        decode(json.dumps({**TEXT, **changed}).encode(), AnyPart, where="prt_1.json")
    assert caught.value.where == "prt_1.json"


def test_a_missing_field_is_named() -> None:
    with pytest.raises(DocumentError, match="callID"):
        decode(json.dumps({**TEXT, "type": "tool"}).encode(), AnyPart)


def test_the_last_of_duplicate_fields_wins_as_in_javascript() -> None:
    raw = json.dumps(TEXT).encode()[:-1] + b',"text":"b"}'
    assert decode(raw, AnyPart).text == "b"


def test_the_order_of_fields_does_not_matter() -> None:
    turned = dict(reversed({**golden("part/file"), "new": 1}.items()))
    assert isinstance(decode(json.dumps(turned).encode(), AnyPart), FilePart)
    assert is_unchanged(turned)


def test_half_a_surrogate_pair_in_place_of_an_object_is_refused() -> None:
    with pytest.raises(DocumentError, match="half a surrogate pair"):
        decode(b'{"input": "\\ud800"}', Tokens)
