"""Errors as the values that messages store."""

from weft.errors import FaultKind, InvalidInputError, ModelNotFoundError, ProviderError
from weft.model.failure import ApiFailure, unknown_failure
from weft.model.wire import to_plain
from weft.run.failure import to_failure


def test_the_hint_is_stored_with_the_failure() -> None:
    error = InvalidInputError("provider.x.npm", "pydantic-ai is not installed", hint="run: pip install it")
    assert to_failure(error) == unknown_failure(
        "provider.x.npm: pydantic-ai is not installed (run: pip install it)"
    )


def failure_text(kind: FaultKind, *, hint: str = "", wait_ms: int | None = None) -> str:
    error = ProviderError("no", status=429)
    error.kind, error.hint, error.wait_ms = kind, hint, wait_ms
    failure = to_failure(error)
    assert isinstance(failure, ApiFailure)
    return failure.data.message


def test_the_failure_quotes_the_provider_with_the_hint() -> None:
    assert (
        failure_text("auth", hint="the key is that of LOOM_API_KEY") == "no (the key is that of LOOM_API_KEY)"
    )


def test_a_long_wait_requested_by_a_provider_is_stated() -> None:
    assert failure_text("rate-limit", wait_ms=3_600_000) == "no (it asks you to wait 60 minutes)"
    assert failure_text("rate-limit", wait_ms=12_000) == "no"


def test_an_unknown_model_fails_with_the_name_that_opencode_uses() -> None:
    error = ModelNotFoundError("loom", "wrap", near=("loom/warp",))
    assert to_plain(to_failure(error)) == {
        "name": "ProviderModelNotFoundError",
        "data": {
            "providerID": "loom",
            "modelID": "wrap",
            "suggestions": ["loom/warp"],
            "message": "there is no model loom/wrap (did you mean loom/warp?)",
        },
    }


def test_an_error_without_a_message_is_named_by_its_type() -> None:
    assert to_failure(KeyError()) == unknown_failure("KeyError")
