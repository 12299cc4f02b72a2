"""The error for a local model server that does not run."""

import pytest

from weft.provider.catalog.local import find_refused_connection

OLLAMA = "is Ollama running? `ollama serve` starts it"


def group() -> OSError:
    """Return the error for a name with two addresses, one of which this machine does not have."""
    failed = OSError("All connection attempts failed")
    failed.__cause__ = ExceptionGroup(
        "", [OSError(99, "Cannot assign"), ConnectionRefusedError(111, "refused")]
    )
    return failed


@pytest.mark.parametrize(
    ("url", "provider", "place", "hint"),
    [
        ("http://127.0.0.1:11434/v1", "mine", "127.0.0.1:11434", OLLAMA),
        ("http://localhost:5000/v1", "ollama", "localhost:5000", OLLAMA),
        ("http://someone:secret@[::1]:1234/v1", "mine", "[::1]:1234", "is the LM Studio server running?"),
        ("http://127.0.0.1:8080/v1", "llamacpp", "127.0.0.1:8080", "is the llama.cpp server running?"),
        ("http://127.0.0.1:8000/v1", "mine", "127.0.0.1:8000", "is the server running?"),
    ],
)
def test_a_refused_connection_to_this_machine_is_not_retried(
    url: str, provider: str, place: str, hint: str
) -> None:
    refusal = find_refused_connection(url, group(), provider)
    assert refusal is not None
    assert (str(refusal), refusal.kind, refusal.retryable, refusal.hint) == (
        f"nothing listens at {place}: the connection was refused",
        "network",
        False,
        hint,
    )


@pytest.mark.parametrize(
    ("url", "error"),
    [
        ("https://api.example.test/v1", ConnectionRefusedError(111, "refused")),
        ("http://192.168.1.5:11434/v1", ConnectionRefusedError(111, "refused")),
        ("http://127.0.0.1:11434/v1", ConnectionResetError(104, "reset")),
    ],
)
def test_other_addresses_and_errors_are_retried(url: str, error: Exception) -> None:
    assert find_refused_connection(url, error) is None
