"""`weft models`: list models with their context size, prices and abilities."""

import argparse
import os
import sys
from collections.abc import Iterator, Mapping
from decimal import Decimal
from functools import partial
from typing import Any

from weft.cli.arguments import add_directory, add_format
from weft.cli.config import load_and_warn
from weft.cli.exit import ExitCode
from weft.cli.output import Paint, print_note, sanitize, warn, write_json
from weft.config.flags import read_flags
from weft.config.secrets import list_secret_values, redact_settings
from weft.errors import ConfigError, InvalidInputError, NotFoundError, ProviderError
from weft.host.paths import Paths, paths_from
from weft.local.models import ProviderEnvironment, build_offers
from weft.model.catalog import Model
from weft.model.display import format_count
from weft.model.wire import to_plain
from weft.project.checkout import find_checkout
from weft.provider.catalog.access import fill_variables, is_loopback, make_missing_key_error
from weft.provider.catalog.local import list_served_models
from weft.provider.catalog.models import Fetch, fetch_catalogue
from weft.provider.catalog.offers import (
    DEMO,
    SCRIPTED_PROVIDER,
    ProviderOffer,
    ProviderOffers,
    make_scripted_model,
)

# Servers that list their own models are usually on this machine, and answer at once or are not running. One that `OLLAMA_HOST` or a
# `baseURL` names elsewhere gets no longer.
LOCAL_TIMEOUT_SECONDS = 1.5
THOUSAND, MILLION = 1_000, 1_000_000
HEADER = ("Model", "Context", "Output", "In $/M", "Out $/M", "Cache $/M", "Can")


def load_offers(directory: str, env: Mapping[str, str]) -> tuple[ProviderOffers, Paths]:
    """Return what providers offer in a directory, and warn about problems in the configuration."""
    checkout = find_checkout(directory)
    scope, loaded = load_and_warn(checkout.directory, checkout.top or checkout.directory, env)
    return build_offers(loaded, ProviderEnvironment(env=env, paths=scope.paths, warn=warn)), scope.paths


def add_models_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "provider",
        nargs="?",
        help="only models of this provider; a local server such as ollama is asked for its list",
    )
    add("--all", action="store_true", help="include models without a key, and the scripted one")
    add("--verbose", action="store_true", help="print everything that is known about each model, as JSON")
    add("--refresh", action="store_true", help="download the catalogue first")
    add_format(parser)
    add_directory(parser)


def list_models_command(args: argparse.Namespace) -> int:
    env = os.environ
    if args.refresh:
        refresh_catalogue(env)
    offers, _ = load_offers(args.dir, env)
    models = find_models(offers, args.provider, env, everything=args.all)
    print_models(sorted(models, key=_sort_key), args, env)
    if not models:
        print_note("no model is available: set a key such as ANTHROPIC_API_KEY, or run: weft auth login")
    return ExitCode.DONE


def _sort_key(model: Model) -> tuple[bool, str, str]:
    """Sort OpenCode's own models first, as OpenCode does, then by name."""
    return not model.provider_id.startswith("opencode"), model.provider_id, model.id


def refresh_catalogue(env: Mapping[str, str]) -> None:
    flags = read_flags(env)
    if flags.disable_models_fetch:
        raise InvalidInputError("--refresh", "OPENCODE_DISABLE_MODELS_FETCH is set", hint="unset it to fetch")
    try:
        count = fetch_catalogue(paths_from(env).models_file, flags.models_url, load_fetch())
    except ProviderError as error:
        error.hint = error.hint or "without --refresh, the catalogue that is here already is used"
        raise
    print_note(f"the catalogue was fetched: {format_count(count, 'provider')}")


def load_fetch(**options: Any) -> Fetch:
    """Return the function that fetches a URL."""
    from weft.provider.catalog.fetch import fetch  # noqa: PLC0415  it imports HTTP, which most lists do not need

    return partial(fetch, **options)


# --- find ---


def find_models(
    offers: ProviderOffers, provider: str | None, env: Mapping[str, str], *, everything: bool
) -> list[Model]:
    if provider == SCRIPTED_PROVIDER and offers.find(provider) is None:
        return [make_scripted_model(DEMO)]
    if provider is not None:
        return _list_provider_models(get_offer(offers, provider), env, everything=everything)
    selected = offers.list_all() if everything else offers.list_available()
    for offer in offers.list_all():
        if offer.configured:
            _warn_unknown_adapter(offer)
    models = [
        model for offer in selected for model in _list_offered_models(offer, env, everything=everything)
    ]
    # The scripted model is only for demos and tests, so it is not listed among those to choose from.
    return [*models, make_scripted_model(DEMO)] if everything else models


def get_offer(offers: ProviderOffers, provider: str) -> ProviderOffer:
    offer = offers.find(provider)
    if offer is None:
        hint = offers.explain_disabled(provider) or "weft models --all lists them"
        raise NotFoundError("provider", provider, near=offers.find_similar(provider), hint=hint)
    return offer


def _list_provider_models(offer: ProviderOffer, env: Mapping[str, str], *, everything: bool) -> list[Model]:
    if offer.accepts_any_model:
        return fetch_served_models(offer, env)
    if not everything and not offer.available and offer.has_adapter:
        error = make_missing_key_error(offer.id, offer.key_names, login_type=offer.login_type)
        error.hint = f"weft models {offer.id} --all lists its models without a key"
        raise error
    _warn_unknown_adapter(offer)
    return offer.list_models(everything=everything)


def _warn_unknown_adapter(offer: ProviderOffer) -> None:
    if not offer.has_adapter:
        warn(ConfigError(f"provider.{offer.id}", f"weft has no adapter for {offer.npm!r}", key="npm"))


def _list_offered_models(offer: ProviderOffer, env: Mapping[str, str], *, everything: bool) -> list[Model]:
    if not offer.accepts_any_model or not offer.configured:
        return offer.list_models(everything=everything)
    try:
        return fetch_served_models(offer, env)
    except ProviderError as error:
        warn(ConfigError(f"provider.{offer.id}", f"{error}; it is left out"))
        return []


def fetch_served_models(offer: ProviderOffer, env: Mapping[str, str]) -> list[Model]:
    """Ask a server, usually a local one, for its models: no catalogue lists them."""
    url = fill_variables(offer.base_url, env, offer.id)
    headers = {"Authorization": f"Bearer {offer.key.secret}"} if offer.key is not None else {}
    local = is_loopback(url)
    fetch = load_fetch(
        deadline=LOCAL_TIMEOUT_SECONDS,
        direct=local,
        headers={**headers, **(offer.options.get("headers") or {})},
    )
    models = (offer.find(id) for id in list_served_models(url, fetch))
    return [model for model in models if model is not None]


# --- print ---


def print_models(models: list[Model], args: argparse.Namespace, env: Mapping[str, str]) -> None:
    secrets = list_secret_values(env)
    if args.format == "json":
        rows = [redact_settings(to_plain(model), secrets=secrets) for model in models]
        write_json(rows)
    elif args.verbose:
        for model in models:
            print(format_name(model))
            write_json(redact_settings(to_plain(model), secrets=secrets))
    elif sys.stdout.isatty():
        for line in format_models(models, Paint(sys.stdout)):
            print(line)
    else:
        for model in models:
            print(format_name(model))


def format_name(model: Model) -> str:
    return sanitize(f"{model.provider_id}/{model.id}").replace("\n", " ")


def format_models(models: list[Model], paint: Paint) -> Iterator[str]:
    rows = [HEADER, *(_to_row(model) for model in models)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for number, row in enumerate(rows):
        name, *figures, abilities = row
        aligned = [figure.rjust(width) for figure, width in zip(figures, widths[1:-1], strict=True)]
        line = "  ".join([name.ljust(widths[0]), *aligned])
        yield paint.bold(f"{line}  {abilities}") if number == 0 else f"{line}  {paint.dim(abilities)}"


def _to_row(model: Model) -> tuple[str, ...]:
    cost = model.cost
    return (
        format_name(model),
        format_limit(model.limit.context),
        format_limit(model.limit.output),
        format_price(cost.input if cost else None),
        format_price(cost.output if cost else None),
        f"{format_price(cost.cache.read)}/{format_price(cost.cache.write)}" if cost else "?",
        " ".join(_list_abilities(model)),
    )


def format_limit(count: int) -> str:
    """Format a limit of tokens; 0 means that it is unknown."""
    if not count:
        return "?"
    if count < THOUSAND:
        return str(count)
    size, unit = (count / MILLION, "M") if count >= MILLION else (count / THOUSAND, "K")
    return f"{size:.1f}".removesuffix(".0") + unit


def format_price(price: Decimal | None) -> str:
    """Format a price per million tokens. An unknown price is not shown as 0."""
    if price is None:
        return "?"
    return f"{price.normalize():f}" if price else "0"


def _list_abilities(model: Model) -> Iterator[str]:
    capabilities = model.capabilities
    if capabilities.toolcall:
        yield "tools"
    if capabilities.reasoning:
        yield "reasoning"
    yield from (name for name in ("image", "pdf", "audio", "video") if getattr(capabilities.input, name))
    if model.status != "active":
        yield model.status
