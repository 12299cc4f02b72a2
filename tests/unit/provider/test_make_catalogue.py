"""The tool that generates the bundled catalogue: only facts, and the same bytes every time."""

import gzip
import json
import zipfile
from pathlib import Path

import make_catalogue
from weft.provider.catalog.models import PackedCatalogue

SOURCE = {
    "b": {"id": "b", "name": "B", "env": ["B_API_KEY"], "npm": "n", "doc": "https://b.test", "models": {}},
    "a": {
        "id": "a",
        "name": "A",
        "env": [],
        "npm": "n",
        "api": "https://a.test",
        "models": {
            "m": {
                "id": "m",
                "name": "M",
                "knowledge": "2025-01",
                "open_weights": False,
                "temperature": False,
                "limit": {"context": 1, "output": 2, "odd": 3},
                "cost": {
                    "input": 1,
                    "output": 2,
                    "tiers": [1],
                    "context_over_200k": {"input": 3, "output": 4, "odd": 5},
                },
                "modalities": {"input": ["text"], "output": ["text"]},
            }
        },
    },
}
MADE = {
    "a": {
        "name": "A",
        "env": [],
        "npm": "n",
        "api": "https://a.test",
        "models": {
            "m": {
                "name": "M",
                "temperature": False,
                "limit": {"context": 1, "output": 2},
                "modalities": {"input": ["text"], "output": ["text"]},
                "cost": {"input": 1, "output": 2, "context_over_200k": {"input": 3, "output": 4}},
            }
        },
    },
    "b": {"name": "B", "env": ["B_API_KEY"], "npm": "n", "models": {}},
}


def test_a_snapshot_contains_only_the_fields_that_are_read(tmp_path: Path) -> None:
    source, target = tmp_path / "api.json", tmp_path / "data" / "models.pack"
    source.write_text(json.dumps(SOURCE))
    assert make_catalogue.make(source, target) == f"2 providers, 1 models, {target.stat().st_size:,} bytes"
    packed = PackedCatalogue(target.read_bytes())
    assert {id: json.loads(bytes(provider)) for id, provider in packed.items()} == MADE


def test_a_wheel_contains_the_same_bytes_as_the_file(tmp_path: Path) -> None:
    plain, wheel = tmp_path / "api.json", tmp_path / "models.whl"
    plain.write_text(json.dumps(SOURCE))
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr(make_catalogue.IN_WHEEL, gzip.compress(json.dumps(SOURCE).encode()))
    make_catalogue.make(plain, tmp_path / "one.pack")
    make_catalogue.make(wheel, tmp_path / "two.pack")
    assert (tmp_path / "one.pack").read_bytes() == (tmp_path / "two.pack").read_bytes()
