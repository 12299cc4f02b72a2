"""`weft models`: the models there are, what they take in, what they cost, what they can do."""

import argparse
import os
import sys
from collections.abc import Iterator, Mapping
from decimal import Decimal
from functools import partial
from importlib import import_module
from typing import Any

from weft.cli.exit import Exit
from weft.cli.offers import load_offers, warn
from weft.cli.paint import Paint, plain, write_json
from weft.config.flags import read_flags
from weft.config.secrets import mask, secret_values
from weft.errors import ConfigError, InvalidInputError, NotFoundError, ProviderError
from weft.host.paths import paths_from
from weft.model.catalog import Model
from weft.model.readable import plural
from weft.model.wire import to_plain
from weft.provider.catalog.access import fill_in, is_loopback, missing_key
from weft.provider.catalog.local import list_served
from weft.provider.catalog.models import Fetch, refresh
from weft.provider.catalog.offers import DEMO, PROVIDER, Offer, Offers, scripted_model

# A server on this machine answers at once or is not there.
SHORT = 1.5
THOUSAND, MILLION = 1_000, 1_000_000
HEADER = ("Model", "Context", "Output", "In $/M", "Out $/M", "Cache $/M", "Can")


def models_command(chosen: argparse.Namespace) -> int:
    env = os.environ
    if chosen.refresh:
        refresh_catalogue(env)
    offers, _ = load_offers(chosen.dir, env)
    found = find_models(offers, chosen.provider, env, everything=chosen.all)
    show(sorted(found, key=_place), chosen, env)
    if not found:
        say("no model is available: set a key such as ANTHROPIC_API_KEY, or run: weft auth login")
    return Exit.DONE


def say(words: str) -> None:
    print(Paint(sys.stderr).dim(words), file=sys.stderr)


def _place(model: Model) -> tuple[bool, str, str]:
    """OpenCode's own first, as it lists them; then by the alphabet."""
    return not model.provider_id.startswith("opencode"), model.provider_id, model.id


def refresh_catalogue(env: Mapping[str, str]) -> None:
    flags = read_flags(env)
    if flags.disable_models_fetch:
        raise InvalidInputError("--refresh", "OPENCODE_DISABLE_MODELS_FETCH is set", hint="unset it to fetch")
    count = refresh(paths_from(env).models_file, flags.models_url, load_fetch())
    say(f"the catalogue was fetched: {plural(count, 'provider')}")


def load_fetch(**more: Any) -> Fetch:
    """What fetches a URL. HTTP is imported for who needs it, not for every list."""
    return partial(import_module("weft.provider.catalog.fetch").fetch, **more)


# --- which ---


def find_models(
    offers: Offers, provider: str | None, env: Mapping[str, str], *, everything: bool
) -> list[Model]:
    if provider == PROVIDER and offers.find(provider) is None:
        return [scripted_model(DEMO)]
    if provider is not None:
        return _of_provider(get_offer(offers, provider), env, everything=everything)
    chosen = offers.list_all() if everything else offers.list_available()
    for offer in offers.list_all():
        if offer.configured:
            _warn_unknown(offer)
    found = [model for offer in chosen for model in _of_one_of_many(offer, env, everything=everything)]
    # The one that only pretends is not among those that a person chooses from.
    return [*found, scripted_model(DEMO)] if everything else found


def get_offer(offers: Offers, provider: str) -> Offer:
    offer = offers.find(provider)
    if offer is None:
        hint = offers.why_off(provider) or "weft models --all lists them"
        raise NotFoundError("provider", provider, near=offers.near(provider), hint=hint)
    return offer


def _of_provider(offer: Offer, env: Mapping[str, str], *, everything: bool) -> list[Model]:
    if offer.open:
        return ask_server(offer, env)
    if not everything and not offer.available and offer.known:
        raise missing_key(offer.id, offer.key_names, stored=offer.stored)
    _warn_unknown(offer)
    return offer.list_models(everything=everything)


def _warn_unknown(offer: Offer) -> None:
    if not offer.known:
        warn(ConfigError(f"provider.{offer.id}", f"weft has no adapter for {offer.npm!r}", key="npm"))


def _of_one_of_many(offer: Offer, env: Mapping[str, str], *, everything: bool) -> list[Model]:
    if not offer.open or not offer.configured:
        return offer.list_models(everything=everything)
    try:
        return ask_server(offer, env)
    except ProviderError as error:
        warn(ConfigError(f"provider.{offer.id}", f"{error}; it is left out"))
        return []


def ask_server(offer: Offer, env: Mapping[str, str]) -> list[Model]:
    """The models of a server that alone knows them."""
    url = fill_in(offer.base_url, env, offer.id)
    headers = {"Authorization": f"Bearer {offer.key.secret}"} if offer.key is not None else {}
    near = is_loopback(url)
    fetch = load_fetch(
        deadline=SHORT, direct=near, headers={**headers, **(offer.options.get("headers") or {})}
    )
    found = (offer.find(id) for id in list_served(url, fetch))
    return [model for model in found if model is not None]


# --- how ---


def show(models: list[Model], chosen: argparse.Namespace, env: Mapping[str, str]) -> None:
    secrets = secret_values(env)
    if chosen.format == "json":
        rows = [mask(to_plain(model), secrets=secrets) for model in models]
        write_json(rows)
    elif chosen.verbose:
        for model in models:
            print(name_of(model))
            write_json(mask(to_plain(model), secrets=secrets))
    elif sys.stdout.isatty():
        for line in to_table(models, Paint(sys.stdout)):
            print(line)
    else:
        for model in models:
            print(name_of(model))


def name_of(model: Model) -> str:
    return plain(f"{model.provider_id}/{model.id}").replace("\n", " ")


def to_table(models: list[Model], paint: Paint) -> Iterator[str]:
    rows = [HEADER, *(_row(model) for model in models)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for number, row in enumerate(rows):
        name, *figures, can = row
        told = [figure.rjust(width) for figure, width in zip(figures, widths[1:-1], strict=True)]
        line = "  ".join([name.ljust(widths[0]), *told])
        yield paint.bold(f"{line}  {can}") if number == 0 else f"{line}  {paint.dim(can)}"


def _row(model: Model) -> tuple[str, ...]:
    cost = model.cost
    return (
        name_of(model),
        tokens(model.limit.context),
        tokens(model.limit.output),
        dollars(cost.input if cost else None),
        dollars(cost.output if cost else None),
        f"{dollars(cost.cache.read)}/{dollars(cost.cache.write)}" if cost else "?",
        " ".join(_abilities(model)),
    )


def tokens(count: int) -> str:
    """As people say it; nothing is not a limit, but one we do not know."""
    if not count:
        return "?"
    if count < THOUSAND:
        return str(count)
    size, unit = (count / MILLION, "M") if count >= MILLION else (count / THOUSAND, "K")
    return f"{size:.1f}".removesuffix(".0") + unit


def dollars(price: Decimal | None) -> str:
    """A price per million tokens. One that is not known is not nought."""
    if price is None:
        return "?"
    return f"{price.normalize():f}" if price else "0"


def _abilities(model: Model) -> Iterator[str]:
    can = model.capabilities
    if can.toolcall:
        yield "tools"
    if can.reasoning:
        yield "reasoning"
    yield from (name for name in ("image", "pdf", "audio", "video") if getattr(can.input, name))
    if model.status != "active":
        yield model.status
