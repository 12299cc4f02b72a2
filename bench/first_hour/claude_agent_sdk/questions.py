import asyncio
import sys
import time

from claude_agent_sdk import ResultMessage, query
from fake_cli import FakeCli, end


async def ask() -> str | None:
    messages = query(prompt="What does this repository do?", transport=FakeCli(end("It weaves.")))
    (answer,) = [message.result async for message in messages if isinstance(message, ResultMessage)]
    return answer


async def main(count: int) -> None:
    await ask()
    began = time.process_time()
    for _ in range(count):
        assert await ask() == "It weaves."
    print((time.process_time() - began) / count)


asyncio.run(main(int(sys.argv[1])))
