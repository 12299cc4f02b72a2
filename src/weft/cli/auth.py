"""`weft auth`: keys of providers, stored, listed and forgotten. No key is ever printed."""

import argparse
import getpass
import os
import sys
from typing import Any

from weft.cli.exit import Exit
from weft.cli.models import get_offer
from weft.cli.offers import load_offers
from weft.cli.paint import Paint, plain, write_json
from weft.errors import InvalidInputError, NotFoundError
from weft.host.paths import Paths, paths_from
from weft.provider.catalog.credentials import key_from_environment, list_logins, remove_login, store_key
from weft.provider.catalog.offers import Offers

LONGEST_KEY = 16_384
KINDS = {"api": "key", "oauth": "login by browser", "wellknown": "organisation"}


def store_typed_key(chosen: argparse.Namespace, provider: str) -> int:
    """Store a key that is typed or piped in."""
    env = os.environ
    offers, paths = load_offers(chosen.dir, env)
    offer = get_offer(offers, provider)
    store_key(paths.auth_file, offer.id, read_key(offer.name, from_stdin=chosen.key_stdin))
    tell(f"the key of {offer.name} is stored; weft models {offer.id} lists what it opens")
    over = key_from_environment(offer.variables, env)
    if over is not None:
        tell(f"it is used instead of the one in {over.variable}")
    return Exit.DONE


def tell(words: str) -> None:
    print(words, file=sys.stderr)


def ask(what: str, otherwise: str) -> str:
    if not at_terminal():
        raise InvalidInputError(what, "none was named", hint=otherwise)
    sys.stderr.write(f"{what}: ")
    sys.stderr.flush()
    return sys.stdin.readline().strip()


def at_terminal() -> bool:
    return sys.stdin is not None and sys.stdin.isatty() and sys.stderr.isatty()


def read_key(name: str, *, from_stdin: bool) -> str:
    """A key as it was typed or piped in. What it was is in no message."""
    if from_stdin:
        given = sys.stdin.read(LONGEST_KEY + 1)
    elif at_terminal():
        given = getpass.getpass(f"key of {name} (not shown): ", stream=sys.stderr)
    else:
        raise InvalidInputError(
            "key", "there is no terminal to type it at", hint="pipe it in with --key-stdin"
        )
    key = given.strip()
    if not key:
        raise InvalidInputError("key", "it is empty")
    if len(key) > LONGEST_KEY or not key.isascii() or not key.isprintable() or " " in key:
        raise InvalidInputError("key", "that is no key: it has spaces, line breaks or odd characters in it")
    return key


def list_keys(chosen: argparse.Namespace) -> int:
    offers, paths = load_offers(chosen.dir, os.environ)
    rows = to_rows(offers, paths)
    if chosen.format == "json":
        write_json(rows)
        return Exit.DONE
    paint = Paint(sys.stdout)
    for row in rows:
        from_where = row.get("variable") or KINDS.get(row["type"], row["type"])
        print(plain(f"{row['provider']:<24}  {row['source']:<12}") + f"  {paint.dim(plain(from_where))}")
    if not rows:
        tell("there is no key: set one such as ANTHROPIC_API_KEY, or run: weft auth login")
    return Exit.DONE


def to_rows(offers: Offers, paths: Paths) -> list[dict[str, Any]]:
    """Every key there is, stored ones first; one that another hides is listed all the same."""
    stored = [
        {"provider": login.provider, "source": "stored", "type": login.type}
        for login in list_logins(paths.auth_file).values()
    ]
    configured, found = [], []
    for offer in offers.list_all():
        if offer.key is not None and offer.key.source == "config":
            configured.append({"provider": offer.id, "source": "config", "type": "api"})
        key = key_from_environment(offer.variables, os.environ)
        if key is not None:
            row = {"provider": offer.id, "source": "environment", "type": "api", "variable": key.variable}
            found.append(row)
    return [*stored, *configured, *found]


def log_out(chosen: argparse.Namespace) -> int:
    path = paths_from(os.environ).auth_file
    there = list(list_logins(path))
    provider = chosen.provider or ask("provider", f"name one: there are {', '.join(there) or 'none'}")
    if not remove_login(path, provider):
        raise NotFoundError(
            "stored key", provider, hint=f"there are {', '.join(there)}" if there else "there is none at all"
        )
    tell(f"the key of {provider} is forgotten")
    return Exit.DONE
