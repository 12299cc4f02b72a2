import asyncio
from typing import Any

from claude_agent_sdk import ClaudeAgentOptions, ResultMessage, create_sdk_mcp_server, query, tool
from fake_cli import FakeCli, call, connect, end


@tool("in_stock", "Say how many of an article there are.", {"item": str})
async def in_stock(arguments: dict[str, Any]) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": str({"tea": 12}[arguments["item"]])}]}


def test_it_looks_up_the_stock() -> None:
    async def ask() -> str | None:
        options = ClaudeAgentOptions(mcp_servers={"shop": create_sdk_mcp_server("shop", tools=[in_stock])})
        messages = [each async for each in query(prompt="How much tea?", options=options, transport=fake)]
        return next(each.result for each in messages if isinstance(each, ResultMessage))

    fake = FakeCli(*connect("shop"), call("shop", "in_stock", {"item": "tea"}), end("12 packs."))
    assert asyncio.run(ask()) == "12 packs."
    assert fake.prompts == ["How much tea?"]
    assert fake.results[-1]["content"] == [{"type": "text", "text": "12"}]
