import asyncio

from claude_agent_sdk import ClaudeAgentOptions, StreamEvent, query
from fake_cli import FakeCli, end, grow


async def main() -> None:
    options = ClaudeAgentOptions(include_partial_messages=True)
    fake = FakeCli(grow("It weaves "), grow("all day."), end("It weaves all day."))
    async for message in query(prompt="What does this repository do?", options=options, transport=fake):
        if isinstance(message, StreamEvent) and message.event["type"] == "content_block_delta":
            print(message.event["delta"].get("text", ""), end="", flush=True)


asyncio.run(main())
