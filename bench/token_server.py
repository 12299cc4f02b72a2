"""A server that streams one long answer in the words of each API, as fast as it is read.

    python bench/token_server.py TOKENS

It prints the port it listens on. The first step of a path is the manner of streaming, the second the API:
`/lumps/anthropic/…` sends some forty tokens at once, as a network does under load; `/single/…` each in an HTTP chunk of its own.
"""

import asyncio
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from weft.provider.scripted import Say
from weft.testing.fake_model_api import Dialect

# The fake APIs are part of the tests.
sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from fake.anthropic import AnthropicDialect
from fake.converse import ConverseDialect
from fake.gemini import GeminiDialect
from fake.openai import OpenAIChatDialect
from fake.responses import ResponsesDialect

DIALECTS: Final[dict[str, Dialect]] = {
    "anthropic": AnthropicDialect(),
    "chat": OpenAIChatDialect(),
    "responses": ResponsesDialect(),
    "gemini": GeminiDialect(),
    "bedrock": ConverseDialect(),
}
LUMP: Final = 40
AT_ONCE: Final = 64 * 1024
HEAD: Final = "HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ntransfer-encoding: chunked\r\n\r\n"


def in_chunks(frames: list[bytes], many: int) -> bytes:
    """Return the frames as chunks of HTTP, with `many` in each."""
    bodies = (b"".join(frames[start : start + many]) for start in range(0, len(frames), many))
    return b"".join(b"%x\r\n%b\r\n" % (len(body), body) for body in bodies) + b"0\r\n\r\n"


def answers(tokens: int) -> Iterator[tuple[str, bytes]]:
    text = " ".join(["token"] * tokens)
    for name, dialect in DIALECTS.items():
        frames, head = dialect.frames([Say(text=text)]), HEAD.format(kind=dialect.kind).encode()
        yield f"lumps/{name}", head + in_chunks(frames, LUMP)
        yield f"single/{name}", head + in_chunks(frames, 1)


async def answer(told: dict[str, bytes], reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """One request: read whole, and answered with what its path names."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode()
    lines = [line.partition(": ") for line in head.split("\r\n")]
    length = next((int(value) for name, _, value in lines if name.lower() == "content-length"), 0)
    await reader.readexactly(length)
    _, manner, name, *_ = head.split(" ")[1].split("/")
    said = told[f"{manner}/{name}"]
    for start in range(0, len(said), AT_ONCE):
        writer.write(said[start : start + AT_ONCE])
        await writer.drain()


async def serve(tokens: int) -> None:
    told = dict(answers(tokens))

    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                await answer(told, reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            writer.close()

    server = await asyncio.start_server(greet, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1])))
