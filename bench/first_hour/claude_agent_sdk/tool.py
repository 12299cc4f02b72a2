import asyncio
from typing import Any

from claude_agent_sdk import ClaudeAgentOptions, ResultMessage, create_sdk_mcp_server, query, tool
from fake_cli import FakeCli, call, connect, end


@tool("in_stock", "Say how many of an article there are.", {"item": str})
async def in_stock(arguments: dict[str, Any]) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": str({"tea": 12}[arguments["item"]])}]}


async def main() -> None:
    shop = create_sdk_mcp_server("shop", tools=[in_stock])
    options = ClaudeAgentOptions(mcp_servers={"shop": shop}, allowed_tools=["mcp__shop__in_stock"])
    fake = FakeCli(*connect("shop"), call("shop", "in_stock", {"item": "tea"}), end("There are 12 packs."))
    async for message in query(prompt="How much tea is there?", options=options, transport=fake):
        if isinstance(message, ResultMessage):
            print(message.result)


asyncio.run(main())
