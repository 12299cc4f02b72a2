"""`weft auth login`: by whichever way there is with a provider. A browser is never opened from here, only named."""

import argparse
import asyncio
import sys
from collections.abc import Sequence

from weft.cli.auth import ask, at_terminal, store_typed_key, tell
from weft.cli.exit import Exit
from weft.cli.offers import warn
from weft.cli.paint import plain
from weft.errors import ConfigError, InvalidInputError
from weft.local.open import Opening, open_app
from weft.model.provider import AuthMethod, AuthPrompt
from weft.outlook import Configuration


def log_in(chosen: argparse.Namespace) -> int:
    provider = chosen.provider or ask("provider", "name one: weft auth login anthropic")
    if "://" in provider:
        raise InvalidInputError(
            "provider", "weft does not log in to organisations yet", hint="name a provider, such as anthropic"
        )
    if not chosen.key_stdin and (at_terminal() or chosen.method is not None):
        try:
            if asyncio.run(_log_in(chosen, provider)):
                return Exit.DONE
        except ConfigError as error:
            if chosen.method is not None:
                raise
            warn(error)  # a key can be stored whatever is wrong with the configuration
    return store_typed_key(chosen, provider)


async def _log_in(chosen: argparse.Namespace, provider: str) -> bool:
    """Whether it was done; not if a key is to be typed in."""
    async with open_app(Opening(directory=chosen.dir, store="memory:", warn=warn)) as app:
        methods = (await app.configuration.list_auth_methods()).get(provider, [])
        place = _choose(methods, chosen.method)
        if place is None or methods[place].type == "api":
            return False
        await _by_browser(app.configuration, provider, place, methods[place].prompts)
        tell(f"you are logged in with {plain(provider)}; weft models {plain(provider)} lists what that opens")
        return True


async def _by_browser(
    configuration: Configuration, provider: str, place: int, prompts: Sequence[AuthPrompt]
) -> None:
    inputs = {prompt.key: _answered(prompt) for prompt in prompts} if at_terminal() else {}
    begun = await configuration.authorize(provider, place, inputs=inputs)
    tell(f"go to: {plain(begun.url)}")
    if begun.instructions:
        tell(plain(begun.instructions))
    code = None
    if begun.method == "code":
        code = await asyncio.to_thread(_read_code)
    else:
        tell("waiting until you have been there …")
    await configuration.finish_authorizing(provider, place, code=code)


def _read_code() -> str:
    if at_terminal():
        return ask("code", "")
    code = sys.stdin.readline().strip()
    if not code:
        raise InvalidInputError("code", "none came on standard input")
    return code


def _answered(prompt: AuthPrompt) -> str:
    if not prompt.options:
        hint = f" ({prompt.placeholder})" if prompt.placeholder else ""
        return ask(plain(f"{prompt.message}{hint}"), "")
    for number, option in enumerate(prompt.options, 1):
        tell(plain(f"  {number}  {option.label}"))
    return prompt.options[_number(ask(plain(prompt.message), ""), len(prompt.options))].value


def _choose(methods: Sequence[AuthMethod], named: str | None) -> int | None:
    """The place of the way that is named, by its number or its label; else of the one a person chooses, if there are two."""
    labels = [method.label for method in methods]
    if not methods:
        return None
    if named is not None:
        return labels.index(named) if named in labels else _number(named, len(methods))
    if len(methods) == 1:
        return 0
    for number, label in enumerate(labels, 1):
        tell(plain(f"  {number}  {label}"))
    return _number(ask("by which", "name it: --method 1"), len(methods))


def _number(typed: str, count: int) -> int:
    if not typed.isdecimal() or not 1 <= int(typed) <= count:
        raise InvalidInputError(
            "method", f"{typed[:40]!r} is none of them", hint=f"a number from 1 to {count}"
        )
    return int(typed) - 1
