"""CPU per streamed token, from the wire to a `Chunk`, of each of our adapters beside the official SDK's, in one run.

    python bench/tokens.py [TOKENS]

The server is another process. `lumps` are some forty tokens in each chunk of HTTP, as they come under load; `single` is one.
The aim is 12 µs or less. `single` comes as fast as it is read, so several chunks of HTTP are often read at once, and their
bytes are handed on together.

The SDKs are installed on demand beside the other tools, outside the tree; without them our own half is told alone.
"""

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import aclosing, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Final

from weft.model.catalog import Limit, Model, ModelApi
from weft.provider.anthropic.adapter import AnthropicMessages
from weft.provider.bedrock.adapter import Bedrock
from weft.provider.chunk import TextDelta
from weft.provider.contract import ModelRequest, Provider, TextContent, UserModelMessage
from weft.provider.endpoint import ModelEndpoint
from weft.provider.gemini.adapter import Gemini
from weft.provider.http_client import HttpClient
from weft.provider.openai_chat.adapter import OpenAIChat
from weft.provider.openai_responses.adapter import OpenAIResponses

TOKENS: Final = 20_000
ROUNDS: Final = 3
MANNERS: Final = ("lumps", "single")
ADAPTERS: Final = {
    "anthropic": AnthropicMessages,
    "chat": OpenAIChat,
    "responses": OpenAIResponses,
    "gemini": Gemini,
    "bedrock": Bedrock,
}
SDKS: Final = ("anthropic", "boto3", "google-genai", "openai")
HELLO: Final = UserModelMessage(content=(TextContent(text="hello"),))
HERE: Final = Path(__file__).parent

# Microseconds a token, by manner and API.
Costs = dict[str, float]


# --- ours ---


async def read(provider: Provider, tokens: int) -> float:
    """CPU seconds of one answer."""
    model = Model(
        id="m", provider_id="p", name="m", api=ModelApi(id="m"), limit=Limit(context=9_000, output=900)
    )
    count, before = 0, time.process_time()
    async for chunk in provider.stream(ModelRequest(model=model, system=(), messages=(HELLO,))):
        count += isinstance(chunk, TextDelta)
    spent = time.process_time() - before
    if count != tokens:
        raise SystemExit(f"{type(provider).__name__} told {count} tokens of {tokens}")
    return spent


@asynccontextmanager
async def connected(name: str, url: str) -> AsyncIterator[Provider]:
    async with aclosing(HttpClient()) as client:
        yield ADAPTERS[name](client, ModelEndpoint(base_url=url, api_key="k", provider_id=name))


async def measure(server: str, tokens: int) -> Costs:
    costs: Costs = {}
    for manner in MANNERS:
        for name in ADAPTERS:
            async with connected(name, f"{server}/{manner}/{name}") as provider:
                best = min([await read(provider, tokens) for _ in range(ROUNDS)])
            costs[f"{manner}/{name}"] = best / tokens * 1e6
    return costs


# --- theirs ---


def find_python() -> Path | None:
    """The Python that has the SDKs, installed if it is not there yet; None, and why, if it cannot be."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    place = cache / "weft-tools" / "sdks"
    python, ready = place / "bin" / "python", place / ".ready"
    if ready.exists() and ready.read_text() == " ".join(SDKS):
        return python
    print(f"installing {', '.join(SDKS)} into {place} …", flush=True)
    quick = ("-q", "--disable-pip-version-check", "--retries", "1", "--timeout", "15")
    install = [python, "-m", "pip", "install", *quick, *SDKS]
    for command in ([sys.executable, "-m", "venv", "--clear", place], install):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            why = (done.stderr or done.stdout).strip().splitlines() or ["no reason given"]
            print(f"the SDKs cannot be installed, so they are left out: {why[-1]}")
            return None
    ready.write_text(" ".join(SDKS))
    return python


def measure_sdks(server: str, tokens: int) -> tuple[Costs, Mapping[str, str]]:
    """What theirs cost, and the name and version of each."""
    python = find_python()
    if python is None:
        return {}, {}
    command = [python, HERE / "sdk_tokens.py", server, str(tokens), str(ROUNDS)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        print(f"the SDKs could not be measured: {(done.stderr.strip().splitlines() or ['?'])[-1]}")
        return {}, {}
    told = json.loads(done.stdout)
    return told["costs"], told["versions"]


# --- both ---


@contextmanager
def served(tokens: int) -> Iterator[str]:
    command = [sys.executable, HERE / "token_server.py", str(tokens)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            if process.stdout is None or not (port := process.stdout.readline().strip()):
                raise SystemExit("the server of tokens did not start")
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()


def row(name: str, own: Costs, sdk: Costs, versions: Mapping[str, str]) -> str:
    cells = [f"{name:<11}"]
    for manner in MANNERS:
        ours, theirs = own[f"{manner}/{name}"], sdk.get(f"{manner}/{name}")
        beside = f"{theirs:7.1f} {theirs / ours:6.1f}x" if theirs is not None else f"{'–':>7} {'–':>7}"
        cells.append(f"{ours:7.1f} {beside}")
    return "   ".join([*cells, versions.get(name, "")]).rstrip()


def main(tokens: int) -> None:
    with served(tokens) as server:
        own = asyncio.run(measure(server, tokens))
        sdk, versions = measure_sdks(server, tokens)
    print(f"CPU per token in µs, {tokens:,} tokens, the best of {ROUNDS}")
    head = f"{'weft':>7} {'SDK':>7} {'ratio':>7}"
    print(f"{'':<11}   {'in lumps':^23}   {'one by one':^23}")
    print(f"{'':<11}   {head}   {head}")
    for name in ADAPTERS:
        print(row(name, own, sdk, versions))


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else TOKENS)
