import asyncio

from claude_agent_sdk import ResultMessage, query
from fake_cli import FakeCli, end


async def main() -> None:
    async for message in query(prompt="What does this repository do?", transport=FakeCli(end("It weaves."))):
        if isinstance(message, ResultMessage):
            print(message.result)


asyncio.run(main())
