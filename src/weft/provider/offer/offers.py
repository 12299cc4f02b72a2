"""Offers: every provider, out of the catalogue, the configuration, the stored keys and the environment."""

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Any

from weft.model.wire import to_plain
from weft.provider.offer.catalogue import Shelf
from weft.provider.offer.entry import Plain
from weft.provider.offer.local import local_url
from weft.provider.offer.offer import Offer, Sources
from weft.provider.offer.packages import LOCAL


class Offers:
    """The providers there are. One that is switched off is not there."""

    def __init__(self, sources: Sources) -> None:
        self._sources = sources
        self._made: dict[str, Offer | None] = {}

    @property
    def configured(self) -> tuple[str, ...]:
        return tuple(self._sources.configured)

    def find(self, provider: str) -> Offer | None:
        if provider not in self._made:
            self._made[provider] = self._make(provider)
        return self._made[provider]

    def why_off(self, provider: str) -> str:
        """What says that a provider is not there, if it was switched off; empty if it was not."""
        if provider in self._sources.disabled:
            return f"disabled_providers switches {provider} off."
        if self._sources.enabled is not None and provider not in self._sources.enabled:
            return f"enabled_providers leaves {provider} out."
        return ""

    def list_all(self) -> list[Offer]:
        """In the order of who is meant: the configured ones, then the catalogue's."""
        ids = dict.fromkeys((*self._sources.configured, *self._sources.catalogue.list_providers()))
        return [offer for id in ids if (offer := self.find(id)) is not None]

    def near(self, provider: str) -> list[str]:
        """The ids most like this one."""
        return get_close_matches(provider, [*(offer.id for offer in self.list_all()), *LOCAL], n=3)

    def list_available(self) -> list[Offer]:
        """Those that can be used as things are: there is a key, or a word in the configuration."""
        return [offer for offer in self.list_all() if offer.available]

    def _make(self, id: str) -> Offer | None:
        sources = self._sources
        if id in sources.disabled or (sources.enabled is not None and id not in sources.enabled):
            return None
        shelf, said = sources.catalogue.find(id), sources.configured.get(id)
        if shelf is None and said is None and not local_url(id, sources.env):
            return None
        return Offer(id, shelf or Shelf(), said, sources)


def to_configured(providers: Mapping[str, Any] | None) -> dict[str, Plain]:
    """The entries under `provider` in plain words, whatever values they were read into."""
    return {id: to_plain(entry) for id, entry in (providers or {}).items()}


def names_of(offers: Iterable[Offer]) -> list[str]:
    return [f"{offer.id}/{id}" for offer in offers for id in offer.list_ids()]
