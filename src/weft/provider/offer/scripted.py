"""Models that follow a script, as they are listed: they need no key and no network."""

from decimal import Decimal
from typing import Final

from weft.model.catalog import CachePrice, Cost, Limit, Model, ModelApi

PROVIDER: Final = "scripted"
DEMO: Final = "demo"


def scripted_model(id: str) -> Model:
    return Model(
        id=id,
        provider_id=PROVIDER,
        name=f"Scripted ({id})",
        api=ModelApi(id=id),
        cost=Cost(
            input=Decimal(3), output=Decimal(15), cache=CachePrice(read=Decimal("0.3"), write=Decimal("3.75"))
        ),
        limit=Limit(context=200_000, output=8_000),
    )
