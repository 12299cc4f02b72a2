"""How many examples a property tries if it needs another number than most."""

from typing import Any

from hypothesis import settings

FEWEST = 5


def examples(count: int, **options: Any) -> settings:
    """Return settings with `count` examples, with a tenth of them in `make test-fast`, and with as many as `make test-random` asks for.

    A number in a test overrides that of the profile, which is loaded before any test is imported.
    """
    match settings.get_current_profile_name():
        case "fast":
            count = max(count // 10, FEWEST)
        case "random":
            count = max(count, settings().max_examples)
    return settings(max_examples=count, **options)
