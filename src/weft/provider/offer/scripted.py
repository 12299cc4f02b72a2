"""Models that follow a script, as they are listed: they need no key and no network."""

from decimal import Decimal
from typing import Final

from weft.model.catalog import CachePrice, Cost, Limit, Model, ModelApi

PROVIDER: Final = "scripted"
DEMO: Final = "demo"
FREE: Final = Cost(input=Decimal(0), output=Decimal(0), cache=CachePrice(read=Decimal(0), write=Decimal(0)))
PRICE: Final = Cost(
    input=Decimal(3), output=Decimal(15), cache=CachePrice(read=Decimal("0.3"), write=Decimal("3.75"))
)


def scripted_model(id: str) -> Model:
    """A model that follows a script. The demo is free, as it is played; others have a price to count with."""
    return Model(
        id=id,
        provider_id=PROVIDER,
        name=f"Scripted ({id})",
        api=ModelApi(id=id),
        cost=FREE if id == DEMO else PRICE,
        limit=Limit(context=200_000, output=8_000),
    )
