"""`weft auth`: log in to a provider, list and remove keys. No key is ever printed."""

import argparse
import asyncio
import getpass
import os
import sys
from collections.abc import Sequence
from typing import Any

from weft.api.configuration import Configuration
from weft.cli.arguments import add_directory, add_format
from weft.cli.exit import ExitCode
from weft.cli.models import get_offer, load_offers
from weft.cli.output import Paint, is_interactive, sanitize, warn, write_json
from weft.errors import ConfigError, InvalidInputError, NotFoundError
from weft.host.paths import Paths, paths_from
from weft.model.provider import AuthMethod, AuthPrompt
from weft.provider.catalog.credentials import find_environment_key, list_logins, remove_login, store_key
from weft.provider.catalog.offers import ProviderOffers

MAX_KEY_LENGTH = 16_384
KINDS = {"api": "key", "oauth": "login by browser", "wellknown": "organisation"}


def add_login_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("provider", nargs="?", help="the provider, such as anthropic")
    add("--key-stdin", action="store_true", help="read the key from standard input instead of asking for it")
    add("--method", metavar="WAY", help="how to log in, by number or name, if there are several ways")
    add_directory(parser)


def log_in(chosen: argparse.Namespace) -> int:
    """Log in the way that the provider offers, or store a key. A browser is never opened from here."""
    provider = chosen.provider or ask_line("provider", "name one: weft auth login anthropic")
    if "://" in provider:
        raise InvalidInputError(
            "provider", "weft does not log in to organisations yet", hint="name a provider, such as anthropic"
        )
    if not chosen.key_stdin and (is_interactive() or chosen.method is not None):
        try:
            if asyncio.run(_log_in(chosen, provider)):
                return ExitCode.DONE
        except ConfigError as error:
            if chosen.method is not None:
                raise
            warn(error)  # a key can be stored even if the configuration is broken
    return store_typed_key(chosen, provider)


async def _log_in(chosen: argparse.Namespace, provider: str) -> bool:
    """Log in by browser. Return False if a key has to be typed in instead."""
    from weft.local.open import OpenOptions, open_directory  # noqa: PLC0415  it imports the whole engine

    async with open_directory(OpenOptions(directory=chosen.dir, store="memory:", warn=warn)) as app:
        methods = (await app.configuration.list_auth_methods()).get(provider, [])
        place = _choose_method(methods, chosen.method)
        if place is None or methods[place].type == "api":
            return False
        await _log_in_by_browser(app.configuration, provider, place, methods[place].prompts)
        print_note(
            f"you are logged in with {sanitize(provider)}; weft models {sanitize(provider)} lists what that opens"
        )
        return True


def _choose_method(methods: Sequence[AuthMethod], named: str | None) -> int | None:
    """Return the index of the method that was named by number or label, or that the person chooses."""
    labels = [method.label for method in methods]
    if not methods:
        return None
    if named is not None:
        return labels.index(named) if named in labels else _parse_number(named, len(methods))
    if len(methods) == 1:
        return 0
    for number, label in enumerate(labels, 1):
        print_note(sanitize(f"  {number}  {label}"))
    return _parse_number(ask_line("by which", "name it: --method 1"), len(methods))


async def _log_in_by_browser(
    configuration: Configuration, provider: str, place: int, prompts: Sequence[AuthPrompt]
) -> None:
    inputs = {prompt.key: _ask_prompt(prompt) for prompt in prompts} if is_interactive() else {}
    begun = await configuration.authorize(provider, place, inputs=inputs)
    print_note(f"go to: {sanitize(begun.url)}")
    if begun.instructions:
        print_note(sanitize(begun.instructions))
    code = None
    if begun.method == "code":
        code = await asyncio.to_thread(_read_code)
    else:
        print_note("waiting until you have been there …")
    await configuration.finish_authorizing(provider, place, code=code)


def _ask_prompt(prompt: AuthPrompt) -> str:
    if not prompt.options:
        hint = f" ({prompt.placeholder})" if prompt.placeholder else ""
        return ask_line(sanitize(f"{prompt.message}{hint}"), "")
    for number, option in enumerate(prompt.options, 1):
        print_note(sanitize(f"  {number}  {option.label}"))
    return prompt.options[_parse_number(ask_line(sanitize(prompt.message), ""), len(prompt.options))].value


def _read_code() -> str:
    if is_interactive():
        return ask_line("code", "")
    code = sys.stdin.readline().strip()
    if not code:
        raise InvalidInputError("code", "there is none on standard input")
    return code


def _parse_number(typed: str, count: int) -> int:
    if not typed.isdecimal() or not 1 <= int(typed) <= count:
        raise InvalidInputError(
            "method", f"{typed[:40]!r} is not one of the choices", hint=f"type a number from 1 to {count}"
        )
    return int(typed) - 1


def store_typed_key(chosen: argparse.Namespace, provider: str) -> int:
    """Store a key that is typed or piped in, and return the exit code."""
    env = os.environ
    offers, paths = load_offers(chosen.dir, env)
    offer = get_offer(offers, provider)
    store_key(paths.auth_file, offer.id, read_key(offer.name, from_stdin=chosen.key_stdin))
    print_note(f"the key of {offer.name} is stored; weft models {offer.id} lists what it opens")
    over = find_environment_key(offer.variables, env)
    if over is not None:
        print_note(f"it is used instead of the one in {over.variable}")
    return ExitCode.DONE


def read_key(name: str, *, from_stdin: bool) -> str:
    """Return the key that is typed or piped in. No error message contains it."""
    if from_stdin:
        given = sys.stdin.read(MAX_KEY_LENGTH + 1)
    elif is_interactive():
        given = getpass.getpass(f"key of {name} (not shown): ", stream=sys.stderr)
    else:
        raise InvalidInputError(
            "key", "there is no terminal to type it in", hint="pipe it in with --key-stdin"
        )
    key = given.strip()
    if not key:
        raise InvalidInputError("key", "it is empty")
    if len(key) > MAX_KEY_LENGTH or not key.isascii() or not key.isprintable() or " " in key:
        raise InvalidInputError("key", "that is not a key: it contains spaces, line breaks or odd characters")
    return key


def add_list_arguments(parser: argparse.ArgumentParser) -> None:
    add_format(parser)
    add_directory(parser)


def list_keys(chosen: argparse.Namespace) -> int:
    offers, paths = load_offers(chosen.dir, os.environ)
    rows = to_rows(offers, paths)
    if chosen.format == "json":
        write_json(rows)
        return ExitCode.DONE
    paint = Paint(sys.stdout)
    for row in rows:
        from_where = row.get("variable") or KINDS.get(row["type"], row["type"])
        print(
            sanitize(f"{row['provider']:<24}  {row['source']:<12}") + f"  {paint.dim(sanitize(from_where))}"
        )
    if not rows:
        print_note("there is no key: set one such as ANTHROPIC_API_KEY, or run: weft auth login")
    return ExitCode.DONE


def to_rows(offers: ProviderOffers, paths: Paths) -> list[dict[str, Any]]:
    """Return every key, stored ones first. A key that another one overrides is listed, too."""
    stored = [
        {"provider": login.provider, "source": "stored", "type": login.type}
        for login in list_logins(paths.auth_file).values()
    ]
    configured, found = [], []
    for offer in offers.list_all():
        if offer.key is not None and offer.key.source == "config":
            configured.append({"provider": offer.id, "source": "config", "type": "api"})
        key = find_environment_key(offer.variables, os.environ)
        if key is not None:
            row = {"provider": offer.id, "source": "environment", "type": "api", "variable": key.variable}
            found.append(row)
    return [*stored, *configured, *found]


def add_logout_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("provider", nargs="?", help="the provider whose key is removed")


def log_out(chosen: argparse.Namespace) -> int:
    path = paths_from(os.environ).auth_file
    there = list(list_logins(path))
    provider = chosen.provider or ask_line("provider", f"name one: there are {', '.join(there) or 'none'}")
    if not remove_login(path, provider):
        raise NotFoundError(
            "stored key", provider, hint=f"there are {', '.join(there)}" if there else "there is none at all"
        )
    print_note(f"the key of {provider} is forgotten")
    return ExitCode.DONE


def ask_line(what: str, otherwise: str) -> str:
    """Ask for one line. Raise `InvalidInputError` with the hint `otherwise` if there is no terminal."""
    if not is_interactive():
        raise InvalidInputError(what, "none was given", hint=otherwise)
    sys.stderr.write(f"{what}: ")
    sys.stderr.flush()
    return sys.stdin.readline().strip()


def print_note(words: str) -> None:
    print(words, file=sys.stderr)
