"""Errors on the wire: the attributes that are sent, and the error that the client makes of them."""

from collections.abc import Mapping
from typing import Any, Final

from weft import errors
from weft.errors import WeftError
from weft.model.wire import wire_name

# The attributes of each error that a client may know. Other errors are sent as a message only.
FACTS: Final[dict[type[WeftError], tuple[str, ...]]] = {
    errors.NotFoundError: ("kind", "id", "near"),
    errors.UnreadableError: ("kind", "id"),
    errors.InvalidInputError: ("field", "reason"),
    errors.InvalidIdError: ("kind", "given"),
    errors.AmbiguousError: ("kind", "given", "candidates"),
    errors.ConflictError: ("kind", "id", "reason"),
    errors.DocumentError: ("where", "reason"),
    errors.BundleError: ("where", "reason"),
    errors.DirectoryError: ("path", "reason"),
    errors.OutsideError: ("path",),
    errors.UnsupportedError: ("what",),
    errors.SnapshotMissingError: ("reason", "files"),
    errors.RestoreFailedError: ("reason", "files", "left"),
    errors.SessionBusyError: ("session", "owner"),
    errors.LimitReachedError: ("limit", "reason"),
    errors.CursorLostError: ("after", "oldest"),
    errors.CompactionIneffectiveError: ("session",),
    errors.DeadlineError: ("limit", "seconds"),
    errors.NoModelError: (),
    errors.ModelNotFoundError: ("provider_id", "model_id", "near"),
    errors.DeniedError: ("permission", "pattern", "rule"),
    errors.BlockedError: ("message",),
    errors.RejectedError: ("message",),
    errors.UnansweredError: ("permission", "patterns", "request"),
    errors.CorrectedError: ("feedback",),
    errors.NobodyError: ("message", "request"),
}
# Names that OpenCode's clients look for, where they differ from ours.
WIRE_NAMES: Final[dict[type[WeftError], str]] = {errors.ModelNotFoundError: "ProviderModelNotFoundError"}
ERRORS_BY_NAME: Final = {WIRE_NAMES.get(kind, kind.__name__): kind for kind in FACTS}


def wire_error_name(error: WeftError) -> str:
    """Return the name that an error has on the wire."""
    return WIRE_NAMES.get(type(error), type(error).__name__)


def to_facts(error: WeftError) -> dict[str, Any]:
    """Return the attributes to send with the message of an error."""
    # The message is sent with every error.
    names = [name for name in FACTS.get(type(error), ()) if name != "message"]
    facts = {wire_name(name): getattr(error, name) for name in names}
    if isinstance(error, errors.ModelNotFoundError):
        facts["suggestions"] = error.near
    return facts | ({"hint": error.hint} if error.hint else {})


def from_facts(name: str, facts: Mapping[str, Any]) -> WeftError | None:
    """Make the error that the server raised. Return None if attributes are missing."""
    kind = ERRORS_BY_NAME.get(name)
    if kind is None or not all(_is_fact(facts.get(wire_name(each))) for each in FACTS[kind]):
        return None
    hint = str(facts.get("hint", ""))
    given = {each: facts[wire_name(each)] for each in FACTS[kind]}
    if "message" in given and hint:
        given["message"] = str(given["message"]).removesuffix(f" ({hint})")
    error = kind(**given)
    error.hint = hint
    return error


def _is_fact(value: object) -> bool:
    if isinstance(value, list | tuple):
        return all(isinstance(each, str) for each in value)
    return isinstance(value, str | int | float)
