import weft
from weft.testing import Script


def in_stock(item: str) -> int:
    """Say how many of an article there are."""
    return {"tea": 12}[item]


script = Script().calls("in_stock", item="tea").says("There are 12 packs.")
with weft.open(".", model=script, tools=[in_stock], store="memory:") as agent:
    print(agent.ask("How much tea is there?"))
