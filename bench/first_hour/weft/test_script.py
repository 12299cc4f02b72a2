import weft
from weft.testing import Script, assert_called


def in_stock(item: str) -> int:
    """Say how many of an article there are."""
    return {"tea": 12}[item]


def test_it_looks_up_the_stock() -> None:
    script = Script("How much tea?").calls("in_stock", item="tea").says("12 packs.")
    with weft.open(".", model=script, tools=[in_stock], store="memory:") as agent:
        answer = agent.ask("How much tea?")
    assert answer.text == "12 packs."
    assert assert_called(answer, "in_stock", item="tea").output == "12"
    script.assert_finished()
