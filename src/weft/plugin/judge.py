"""Judge what a hook gave back: it is a value of the right shape, or it is not taken (pure)."""

from typing import Any

from msgspec import Struct

from weft.errors import InvalidInputError
from weft.model.wire import decode, encode, parse
from weft.plugin.hooks import Hook, Nothing, Now


def judge(hook: Hook[Any, Now], now: Now, given: Any) -> Now:
    """What is to be: `now` for None, else what was given, made anew so that nobody else holds on to it.

    A dict names what is to be otherwise, as it is called in JSON. Raises `WeftError` for anything else.
    """
    if given is None or hook.now is Nothing:
        return now
    if isinstance(given, dict):
        before = parse(encode(now))
        known = [field for field in hook.now.__struct_encode_fields__ if field != "$extra"]
        for key in given:
            if key not in known:
                hint = f"there is {', '.join(known)}"
                raise InvalidInputError("what it gave back", f"there is no {str(key)[:80]!r} here", hint=hint)
        return decode(encode({**before, **given}), hook.now, where="what it gave back")
    if type(given) is not hook.now:
        wanted = f"a {hook.now.__name__}, a dict or None"
        raise InvalidInputError("what it gave back", f"is a {type(given).__name__}, and should be {wanted}")
    return decode(encode(given), hook.now, where="what it gave back")


def copied(value: Any) -> Any:
    """The same value, with dicts and lists of its own: what a hook does to them is done to nobody else's."""
    if isinstance(value, dict):
        return {key: copied(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(copied(item) for item in value)
    if isinstance(value, Struct):
        return type(value)(**{name: copied(getattr(value, name)) for name in value.__struct_fields__})
    return value
