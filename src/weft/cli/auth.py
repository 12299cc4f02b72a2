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
from weft.cli.output import Paint, ask, is_interactive, print_note, sanitize, warn, write_json
from weft.errors import ConfigError, InvalidInputError, NotFoundError
from weft.host.paths import Paths, paths_from
from weft.model.provider import AuthMethod, AuthPrompt
from weft.provider.catalog.credentials import find_environment_key, list_logins, remove_login, store_key
from weft.provider.catalog.offers import ProviderOffers

MAX_KEY_LENGTH = 16_384
NO_STORED_KEY = "no key is stored; weft auth list shows keys from the environment and the configuration"
KIND_LABELS = {"api": "key", "oauth": "login by browser", "wellknown": "organisation"}


def add_login_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("provider", nargs="?", help="the provider, such as anthropic")
    add("--key-stdin", action="store_true", help="read the key from standard input instead of asking for it")
    add("--method", metavar="WAY", help="how to log in, by number or name, if there are several ways")
    add_directory(parser)


def log_in(args: argparse.Namespace) -> int:
    """Log in the way that the provider offers, or store a key. A browser is never opened from here."""
    provider = args.provider or ask_line("provider", "name one: weft auth login anthropic")
    if "://" in provider:
        raise InvalidInputError(
            "provider", "weft does not log in to organisations yet", hint="name a provider, such as anthropic"
        )
    if not args.key_stdin and (is_interactive() or args.method is not None):
        try:
            if asyncio.run(_log_in(args, provider)):
                return ExitCode.DONE
        except ConfigError as error:
            if args.method is not None:
                raise
            warn(error)  # a key can be stored even if the configuration is broken
    return store_typed_key(args, provider)


async def _log_in(args: argparse.Namespace, provider: str) -> bool:
    """Log in by browser. Return False if a key has to be typed in instead."""
    from weft.local.open import OpenOptions, open_directory  # noqa: PLC0415  it imports the whole engine

    async with open_directory(OpenOptions(directory=args.dir, store="memory:", warn=warn)) as app:
        methods = (await app.configuration.list_auth_methods()).get(provider, [])
        index = _choose_method(methods, args.method)
        if index is None or methods[index].type == "api":
            return False
        await _log_in_by_browser(app.configuration, provider, index, methods[index].prompts)
        print_note(
            f"you are logged in with {sanitize(provider)}; weft models {sanitize(provider)} lists the models it gives access to"
        )
        return True


def _choose_method(methods: Sequence[AuthMethod], selection: str | None) -> int | None:
    """Return the index of the method that was named by number or label, or that the person chooses."""
    labels = [method.label for method in methods]
    if not methods:
        return None
    if selection is not None:
        return (
            labels.index(selection)
            if selection in labels
            else _parse_number("method", selection, len(methods))
        )
    if len(methods) == 1:
        return 0
    for number, label in enumerate(labels, 1):
        print_note(sanitize(f"  {number}  {label}"))
    return _parse_number("method", ask_line("which way to log in", "name it: --method 1"), len(methods))


async def _log_in_by_browser(
    configuration: Configuration, provider: str, index: int, prompts: Sequence[AuthPrompt]
) -> None:
    inputs = {prompt.key: _ask_prompt(prompt) for prompt in prompts} if is_interactive() else {}
    authorization = await configuration.authorize(provider, index, inputs=inputs)
    print_note(f"go to: {sanitize(authorization.url)}")
    if authorization.instructions:
        print_note(sanitize(authorization.instructions))
    code = None
    if authorization.method == "code":
        code = _read_code()
    else:
        print_note("waiting for you to log in there …")
    await configuration.finish_authorizing(provider, index, code=code)


def _ask_prompt(prompt: AuthPrompt) -> str:
    if not prompt.options:
        hint = f" ({prompt.placeholder})" if prompt.placeholder else ""
        return ask_line(sanitize(f"{prompt.message}{hint}"), "")
    for number, option in enumerate(prompt.options, 1):
        print_note(sanitize(f"  {number}  {option.label}"))
    label = sanitize(prompt.message)
    return prompt.options[_parse_number(label, ask_line(label, ""), len(prompt.options))].value


def _read_code() -> str:
    if is_interactive():
        return ask_line("code", "")
    code = ask("").strip()
    if not code:
        raise InvalidInputError(
            "code", "there is none on standard input", hint="run weft auth login in a terminal, or pipe it in"
        )
    return code


def _parse_number(label: str, typed: str, count: int) -> int:
    """Return the index of a choice that was typed as a number. `label` is what it answers."""
    if not typed.isdecimal() or not 1 <= int(typed) <= count:
        raise InvalidInputError(
            label, f"{typed[:40]!r} is not one of the choices", hint=f"type a number from 1 to {count}"
        )
    return int(typed) - 1


def store_typed_key(args: argparse.Namespace, provider: str) -> int:
    """Store a key that is typed or piped in, and return the exit code."""
    env = os.environ
    offers, paths = load_offers(args.dir, env)
    offer = get_offer(offers, provider)
    store_key(paths.auth_file, offer.id, read_key(offer.name, from_stdin=args.key_stdin))
    print_note(
        f"the key of {offer.name} is stored; weft models {offer.id} lists the models it gives access to"
    )
    overridden = find_environment_key(offer.variables, env)
    if overridden is not None:
        print_note(f"it is used instead of the one in {overridden.variable}")
    return ExitCode.DONE


def read_key(name: str, *, from_stdin: bool) -> str:
    """Return the key that is typed or piped in. No error message contains it."""
    if from_stdin:
        typed = sys.stdin.read(MAX_KEY_LENGTH + 1)
    elif is_interactive():
        typed = getpass.getpass(f"key of {name} (not shown): ", stream=sys.stderr)
    else:
        raise InvalidInputError(
            "key", "there is no terminal to type it in", hint="pipe it in with --key-stdin"
        )
    key = typed.strip()
    if not key:
        raise InvalidInputError("key", "it is empty", hint="paste it, or pipe it in with --key-stdin")
    if len(key) > MAX_KEY_LENGTH or not key.isascii() or not key.isprintable() or " " in key:
        raise InvalidInputError(
            "key",
            "that is not a key: it contains spaces, line breaks or odd characters",
            hint="copy it again, alone and whole",
        )
    return key


def add_list_arguments(parser: argparse.ArgumentParser) -> None:
    add_format(parser)
    add_directory(parser)


def list_keys(args: argparse.Namespace) -> int:
    offers, paths = load_offers(args.dir, os.environ)
    rows = to_rows(offers, paths)
    if args.format == "json":
        write_json(rows)
        return ExitCode.DONE
    paint = Paint(sys.stdout)
    for row in rows:
        from_where = row.get("variable") or KIND_LABELS.get(row["type"], row["type"])
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
    configured, environment = [], []
    for offer in offers.list_all():
        if offer.key is not None and offer.key.source == "config":
            configured.append({"provider": offer.id, "source": "config", "type": "api"})
        key = find_environment_key(offer.variables, os.environ)
        if key is not None:
            row = {"provider": offer.id, "source": "environment", "type": "api", "variable": key.variable}
            environment.append(row)
    return [*stored, *configured, *environment]


def add_logout_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("provider", nargs="?", help="the provider whose key is removed")


def log_out(args: argparse.Namespace) -> int:
    path = paths_from(os.environ).auth_file
    providers = list(list_logins(path))
    stored = f"keys are stored for {', '.join(providers)}" if providers else NO_STORED_KEY
    provider = args.provider or ask_line("provider", f"name one; {stored}")
    if not remove_login(path, provider):
        raise NotFoundError("stored key", provider, hint=stored)
    print_note(f"the stored key of {provider} is removed")
    return ExitCode.DONE


def ask_line(label: str, hint: str) -> str:
    """Ask for one line and return it. Raise `InvalidInputError` with this hint if there is no terminal."""
    if not is_interactive():
        raise InvalidInputError(label, "none was given", hint=hint)
    return ask(f"{label}: ").strip()
