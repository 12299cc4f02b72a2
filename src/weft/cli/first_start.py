"""The first start without a key: say what can be done now, ask, and remember the choice."""

import os
import sys
from collections.abc import Iterable, Mapping

from weft.cli.models import LOCAL_TIMEOUT_SECONDS, load_fetch
from weft.cli.output import Paint, ask, sanitize
from weft.errors import ConfigError, NoModelError, WeftError
from weft.host.paths import Paths, paths_from
from weft.provider.catalog.access import LOCAL_SERVERS
from weft.provider.catalog.credentials import list_logins
from weft.provider.catalog.local import get_local_url, list_served_models
from weft.provider.catalog.offers import DEMO, SCRIPTED_PROVIDER

CHOICE_FILE = "weft-first-model"
DEMO_MODEL = f"{SCRIPTED_PROVIDER}/{DEMO}"
MAX_LOCAL_MODELS = 8


def offer_models(env: Mapping[str, str], problem: NoModelError) -> str:
    """Return the model to use although no key is known: the one that was chosen before, or that the person chooses now.

    Raise `problem` if the person chooses none.
    """
    paths = paths_from(env)
    remembered = read_choice(paths)
    if remembered:
        note = f"no key is known, so {remembered} answers, as you chose; weft auth login stores a key"
        print(Paint(sys.stderr).dim(sanitize(note)), file=sys.stderr)
        return remembered
    models = [DEMO_MODEL, *find_local_models(env)]
    for line in to_lines(models, list_stored_logins(paths)):
        print(line, file=sys.stderr)
    while typed := ask("choose a number, or press Enter to leave: ").strip():
        if typed.isdecimal() and 1 <= int(typed) <= len(models):
            chosen = models[int(typed) - 1]
            store_choice(paths, chosen)
            return chosen
        print(f"{sanitize(typed)!r} is not a number of the list", file=sys.stderr)
    raise problem


def to_lines(models: list[str], logins: Iterable[str]) -> Iterable[str]:
    """Yield what can be done without a key, with a number for each model."""
    paint = Paint(sys.stderr)
    yield paint.bold("No model has a key yet. What can be done now:")
    for number, model in enumerate(models, 1):
        about = (
            "a scripted demo, offline; weft demo shows it in a scratch repository"
            if model == DEMO_MODEL
            else "on this machine"
        )
        yield f"  {number}  {sanitize(model)}  {paint.dim(about)}"
    names = ", ".join(sanitize(name) for name in logins)
    if names:
        yield paint.dim(f"  stored logins, of which none gives access to a model here: {names}")
    yield paint.dim(
        "  weft auth login stores a key; weft models --all lists the models that it gives access to"
    )


def find_local_models(env: Mapping[str, str]) -> list[str]:
    """Return the models of servers that answer on this machine, such as Ollama or llama.cpp."""
    fetch = load_fetch(deadline=LOCAL_TIMEOUT_SECONDS, direct=True)
    found: list[str] = []
    for provider in LOCAL_SERVERS:
        try:
            served = list_served_models(get_local_url(provider, env), fetch)
        except WeftError:
            continue  # nothing listens there, or something else does
        found += [f"{provider}/{name}" for name in served]
    return found[:MAX_LOCAL_MODELS]


def list_stored_logins(paths: Paths) -> list[str]:
    try:
        return list(list_logins(paths.auth_file))
    except ConfigError:
        return []


def read_choice(paths: Paths) -> str:
    try:
        with open(os.path.join(paths.state, CHOICE_FILE), encoding="utf-8") as file:
            return file.read().strip()
    except OSError:
        return ""


def store_choice(paths: Paths, model: str) -> None:
    """Remember a choice. It is used only as long as no key is known."""
    try:
        os.makedirs(paths.state, exist_ok=True)
        with open(os.path.join(paths.state, CHOICE_FILE), "w", encoding="utf-8") as file:
            file.write(f"{model}\n")
    except OSError as error:
        print(f"{Paint(sys.stderr).yellow('warning:')} the choice was not stored: {error}", file=sys.stderr)
