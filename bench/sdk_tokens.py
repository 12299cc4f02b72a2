"""What the official SDKs spend on the same answers; `tokens.py` runs it with the Python that has them.

    python bench/sdk_tokens.py SERVER TOKENS ROUNDS

Each is read in its leanest way: events as they come, nothing gathered.
"""

import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable
from importlib.metadata import version

import boto3
from anthropic import AsyncAnthropic
from botocore.config import Config
from google import genai
from google.genai.types import HttpOptions
from openai import AsyncOpenAI

Read = Callable[[], Awaitable[int]]


def anthropic(url: str) -> Read:
    # It adds the version of the API by itself.
    client = AsyncAnthropic(api_key="k", base_url=url, max_retries=0)

    async def read() -> int:
        said = [{"role": "user", "content": "hello"}]
        stream = await client.messages.create(model="m", max_tokens=900, messages=said, stream=True)
        return sum([event.type == "content_block_delta" async for event in stream])

    return read


def chat(url: str) -> Read:
    client = AsyncOpenAI(api_key="k", base_url=url, max_retries=0)

    async def read() -> int:
        said = [{"role": "user", "content": "hello"}]
        stream = await client.chat.completions.create(model="m", messages=said, stream=True)
        return sum([bool(each.choices and each.choices[0].delta.content) async for each in stream])

    return read


def responses(url: str) -> Read:
    client = AsyncOpenAI(api_key="k", base_url=url, max_retries=0)

    async def read() -> int:
        stream = await client.responses.create(model="m", input="hello", stream=True)
        return sum([event.type == "response.output_text.delta" async for event in stream])

    return read


def gemini(url: str) -> Read:
    client = genai.Client(api_key="k", http_options=HttpOptions(base_url=url))

    async def read() -> int:
        stream = await client.aio.models.generate_content_stream(model="m", contents="hello")
        return sum([bool(piece.text) async for piece in stream])

    return read


def bedrock(url: str) -> Read:
    client = boto3.client(
        "bedrock-runtime",
        endpoint_url=url,
        region_name="us-east-1",
        aws_access_key_id="k",
        aws_secret_access_key="s",
        config=Config(retries={"total_max_attempts": 1}),
    )

    async def read() -> int:
        said = [{"role": "user", "content": [{"text": "hello"}]}]
        answer = client.converse_stream(modelId="m", messages=said)
        return sum("contentBlockDelta" in event for event in answer["stream"])

    return read


SDKS = {
    "anthropic": (anthropic, "anthropic"),
    "chat": (chat, "openai"),
    "responses": (responses, "openai"),
    "gemini": (gemini, "google-genai"),
    "bedrock": (bedrock, "boto3"),
}


async def spend(read: Read, tokens: int) -> float:
    """CPU seconds of one answer."""
    before = time.process_time()
    count = await read()
    spent = time.process_time() - before
    if count != tokens:
        raise SystemExit(f"{read.__qualname__} told {count} tokens of {tokens}")
    return spent


async def main(server: str, tokens: int, rounds: int) -> None:
    costs = {}
    for manner in ("lumps", "single"):
        for name, (make, _) in SDKS.items():
            read = make(f"{server}/{manner}/{name}")
            costs[f"{manner}/{name}"] = min([await spend(read, tokens) for _ in range(rounds)]) / tokens * 1e6
    versions = {name: f"{package} {version(package)}" for name, (_, package) in SDKS.items()}
    print(json.dumps({"costs": costs, "versions": versions}))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
