"""Mistakes that a type checker must find: each line that ends in `# wrong` has one, and no other line has."""

from dataclasses import dataclass
from typing import assert_type

import weft
from weft.testing import Script, assert_called


@dataclass
class Risk:
    level: str


async def use_answers(agent: weft.Agent[str]) -> None:
    risk = await agent.ask("?", schema=Risk)
    print(risk.value.levels)  # wrong
    plain = await agent.ask("?")
    print(plain.value.level)  # wrong
    assert_type(plain.value, Risk)  # wrong
    print(plain.cost + 1)  # wrong
    print(agent.ask("?").text)  # wrong
    for event in agent.stream("?"):  # wrong
        print(event)


def use_an_agent_that_is_not_open() -> None:
    agent = weft.open(".")
    agent.ask("?")  # wrong
    with weft.open(".") as blocking:
        print(blocking.ask("?").nothing)  # wrong


def permit(request: weft.PermissionRequest) -> str:
    return request.permission


def pass_wrong_arguments() -> None:
    weft.open(".", modell="a/b")  # wrong
    weft.open(".", permissions="sometimes")  # wrong
    weft.open(".", permissions={"bash": "maybe"})  # wrong
    weft.open(".", permissions=permit)  # wrong
    weft.open(".", tools=["look"])  # wrong
    weft.open(".", model=1)  # wrong
    weft.open(".", budget=[])  # wrong
    weft.open(".", tape="tape.jsonl")  # wrong
    weft.connect(4096)  # wrong
    print(weft.openn)  # wrong


def script_wrongly() -> None:
    Script().fails("tired")  # wrong
    Script().uses(tokens=1)  # wrong
    assert_called("read", "a")  # wrong
