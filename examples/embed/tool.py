"""A function of your own as a tool. The model is a script, so that this runs without a key.

python examples/embed/tool.py
"""

import weft
from weft.testing import Script

STOCK = {"tea": 12, "milk": 0}


def in_stock(item: str) -> dict[str, int]:
    """Say how many of an article there are.

    Args:
        item: the name of the article
    """
    return {item: STOCK[item]}


script = Script().calls("in_stock", item="tea").says("There are 12 packs of tea.")
with weft.open(".", model=script, store="memory:", tools=[in_stock]) as agent:
    answer = agent.ask("How much tea is there?")
    print(answer.calls[0].output)
    print(answer)
