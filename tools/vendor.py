"""Fetch the vendored scripts of the page from npm anew, and check them against their manifest.

A new version is written into the manifest by hand; `--accept` then records the checksum of what npm delivers for it.
"""

import argparse
import hashlib
import io
import json
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any

VENDOR = Path(__file__).parents[1] / "src" / "weft" / "web" / "static" / "vendor"
MANIFEST = VENDOR / "manifest.json"


def read_manifest() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(MANIFEST.read_text())
    return found


def hash_file(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def find_faults(folder: Path = VENDOR) -> list[str]:
    """Return what differs from the manifest: a file that is missing or changed, and one that nobody listed."""
    entries = read_manifest()
    faults = [
        f"{entry['file']} is not what the manifest says"
        for entry in entries
        if not (folder / entry["file"]).is_file()
        or hash_file((folder / entry["file"]).read_bytes()) != entry["sha256"]
    ]
    listed = {"manifest.json", *(entry["file"] for entry in entries)}
    return faults + [
        f"{path.name} is not in the manifest" for path in folder.iterdir() if path.name not in listed
    ]


def fetch(entry: dict[str, Any]) -> bytes:
    """Return a file of a package, as npm delivers it."""
    with tempfile.TemporaryDirectory() as scratch:
        name = f"{entry['package']}@{entry['version']}"
        subprocess.run(["npm", "pack", "--silent", name], cwd=scratch, check=True, capture_output=True)
        (packed,) = Path(scratch).glob("*.tgz")
        with tarfile.open(fileobj=io.BytesIO(packed.read_bytes())) as archive:
            member = archive.extractfile(f"package/{entry['path']}")
            assert member is not None, f"{name} has no {entry['path']}"
            return member.read()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--accept", action="store_true", help="record the checksums of what npm delivers")
    args = parser.parse_args()
    entries = read_manifest()
    for entry in entries:
        content = fetch(entry)
        if args.accept:
            entry["sha256"] = hash_file(content)
        elif hash_file(content) != entry["sha256"]:
            sys.stderr.write(
                f"npm delivers another {entry['file']} than the manifest says; nothing was changed\n"
            )
            return 1
        (VENDOR / entry["file"]).write_bytes(content)
        sys.stdout.write(f"{entry['file']}: {entry['package']} {entry['version']}, {len(content)} bytes\n")
    MANIFEST.write_text(json.dumps(entries, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
