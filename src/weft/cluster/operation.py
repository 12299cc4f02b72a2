"""Operations on a session of another node: the types of each kind, and outcomes as bytes (pure)."""

from typing import Any, Final

from msgspec import Struct

from weft.errors import ServerError, WeftError
from weft.model.error_wire import from_facts, to_facts, wire_error_name
from weft.model.ids import MessageID, PartID, PermissionID, QuestionID
from weft.model.input import CommandInput, PromptInput, ShellInput
from weft.model.message import MessageWithParts
from weft.model.part import ModelRef
from weft.model.permission import DEFAULT_GRANT_TERMS, GrantTerms, Reply
from weft.model.session import RevertResult
from weft.model.wire import Wire, encode, from_plain, parse


class NoArguments(Wire, frozen=True, kw_only=True):
    """The arguments of an operation that has none."""


class CompactArguments(Wire, frozen=True, kw_only=True):
    model: ModelRef | None = None


class InitializeArguments(Wire, frozen=True, kw_only=True):
    model: ModelRef | None = None
    message_id: MessageID | None = None


class RevertArguments(Wire, frozen=True, kw_only=True):
    message_id: MessageID
    part_id: PartID | None = None
    files: tuple[str, ...] | None = None
    dry_run: bool = False


class UnrevertArguments(Wire, frozen=True, kw_only=True):
    files: tuple[str, ...] | None = None
    dry_run: bool = False


class PermissionReplyArguments(Wire, frozen=True, kw_only=True):
    id: PermissionID
    reply: Reply
    message: str = ""
    grant: GrantTerms = DEFAULT_GRANT_TERMS


class QuestionReplyArguments(Wire, frozen=True, kw_only=True):
    id: QuestionID
    answers: tuple[tuple[str, ...], ...] = ()


class Operation(Struct, frozen=True, kw_only=True):
    """One kind of delivery.

    * `takes` and `gives` are the types of its arguments and of its result;
    * one that is `repeatable` may be done again if the node that began it died: doing it twice is doing it once;
    * one that `joins` waits while another process runs the session; any other fails with `SessionBusyError`, as it would on one node;
    * one that is `patient` waits until a node can do it; any other fails soon if there is none.
    """

    takes: Any
    gives: Any = None
    repeatable: bool = False
    joins: bool = False
    patient: bool = False


# A prompt has an id, so the second attempt finds what the first one stored: it continues, and repeats nothing.
OPERATIONS: Final[dict[str, Operation]] = {
    "prompt": Operation(takes=PromptInput, gives=MessageWithParts, repeatable=True, joins=True, patient=True),
    "submit": Operation(takes=PromptInput, gives=MessageWithParts, repeatable=True, joins=True, patient=True),
    "command": Operation(takes=CommandInput, gives=MessageWithParts, joins=True, patient=True),
    "shell": Operation(takes=ShellInput, gives=MessageWithParts, patient=True),
    "compact": Operation(takes=CompactArguments, gives=MessageWithParts, patient=True),
    "uncompact": Operation(takes=NoArguments, gives=bool),
    "initialize": Operation(takes=InitializeArguments, gives=MessageWithParts, joins=True, patient=True),
    "revert": Operation(takes=RevertArguments, gives=RevertResult),
    "unrevert": Operation(takes=UnrevertArguments, gives=RevertResult),
    "abort": Operation(takes=NoArguments, gives=bool, repeatable=True),
    "reply_permission": Operation(takes=PermissionReplyArguments, repeatable=True),
    "reply_question": Operation(takes=QuestionReplyArguments, repeatable=True),
    "reject_question": Operation(takes=QuestionReplyArguments, repeatable=True),
}


# What waits until a node can do it, and can be withdrawn until one has begun.
PATIENT: Final = tuple(kind for kind, operation in OPERATIONS.items() if operation.patient)


def encode_value(value: Any) -> bytes:
    """Encode the result of an operation."""
    return encode({"value": value})


def encode_error(error: Exception) -> bytes:
    """Encode an error, so that the caller on another node gets the same one. Of an error that is not ours, only the type is sent."""
    if not isinstance(error, WeftError):
        return encode({"error": {"name": type(error).__name__, "message": "the node failed", "facts": {}}})
    facts = to_facts(error)
    return encode({"error": {"name": wire_error_name(error), "message": str(error), "facts": facts}})


def is_failure(raw: bytes) -> bool:
    """Return True if an outcome is an error."""
    return raw.startswith(b'{"error"')


def decode_outcome(kind: str, raw: bytes) -> Any:
    """Return the result of an operation, or raise its error."""
    outcome = parse(raw, where="outcome")
    if "error" in outcome:
        failed = outcome["error"]
        error = from_facts(failed["name"], failed["facts"] | {"message": failed["message"]})
        raise error or ServerError(f"{failed['name']}: {failed['message']}")
    gives = OPERATIONS[kind].gives
    return None if gives is None else from_plain(outcome["value"], gives, where="outcome")
