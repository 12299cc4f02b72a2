"""Write the bill of materials of a release: all that is installed or shipped with weft, with version and licence, as CycloneDX 1.6.

    make sbom

Python packages are those of the environment that runs this; the vendored scripts of the page are those of their manifest. A part
without a known licence is an error: nobody may ship what nobody may use.
"""

import argparse
import importlib.metadata
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from vendor import read_manifest

ROOT = Path(__file__).parents[1]
EXTRAS = ("acp", "images", "mcp", "otel", "parquet", "postgres", "ui")
# Licences of packages whose metadata name none that a program can read, looked up in their files.
KNOWN_LICENCES = {"agent-client-protocol": "Apache-2.0", "apsw": "Zlib", "prompt-toolkit": "BSD-3-Clause"}
CLASSIFIED = {
    "License :: OSI Approved :: Apache Software License": "Apache-2.0",
    "License :: OSI Approved :: MIT License": "MIT",
}


def list_requirements(name: str, extras: Sequence[str]) -> Iterator[Requirement]:
    """Yield what a package needs here, with these extras."""
    for line in importlib.metadata.requires(name) or ():
        needed = Requirement(line)
        marker = needed.marker
        if marker is None or any(marker.evaluate({"extra": extra}) for extra in ("", *extras)):
            yield needed


def collect_packages(name: str, extras: Sequence[str]) -> dict[str, list[str]]:
    """Return every package that weft needs, directly or not, each with those that it needs."""
    found: dict[str, list[str]] = {}
    waiting = [(canonicalize_name(name), tuple(extras))]
    while waiting:
        package, wanted = waiting.pop()
        needed = list(list_requirements(package, wanted))
        names = sorted({canonicalize_name(each.name) for each in needed})
        if set(names) <= set(found.get(package, ())) and package in found:
            continue
        found[package] = sorted({*names, *found.get(package, ())})
        waiting += [(canonicalize_name(each.name), tuple(each.extras)) for each in needed]
    return found


def find_licence(name: str) -> str:
    """Return the licence of an installed package as an SPDX expression, empty if its metadata tell none."""
    metadata = importlib.metadata.metadata(name)
    stated = metadata["License-Expression"] or KNOWN_LICENCES.get(name)
    if stated:
        return stated
    classified = [CLASSIFIED[each] for each in metadata.get_all("Classifier") or () if each in CLASSIFIED]
    return " OR ".join(classified) or metadata["License"] or ""


def describe_package(name: str) -> dict[str, Any]:
    version = importlib.metadata.version(name)
    return {
        "type": "library",
        "bom-ref": name,
        "name": name,
        "version": version,
        "purl": f"pkg:pypi/{name}@{version}",
        "licenses": [{"expression": find_licence(name)}],
    }


def describe_script(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Describe a vendored script of the page by its line in the manifest."""
    return {
        "type": "library",
        "bom-ref": entry["file"],
        "name": entry["package"],
        "version": entry["version"],
        "purl": f"pkg:npm/{entry['package']}@{entry['version']}",
        "licenses": [{"license": {"name": entry["licence"]}}],
        "hashes": [{"alg": "SHA-256", "content": entry["sha256"]}],
    }


def build_bill(extras: Sequence[str]) -> dict[str, Any]:
    """Return the bill of materials. It tells no time, so that equal parts make an equal file."""
    packages = collect_packages("weft", extras)
    scripts = [describe_script(entry) for entry in read_manifest()]
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": {**describe_package("weft"), "type": "application"}},
        "components": [*(describe_package(name) for name in sorted(packages) if name != "weft"), *scripts],
        "dependencies": [{"ref": name, "dependsOn": needed} for name, needed in sorted(packages.items())],
    }


def find_unlicensed(bill: Mapping[str, Any]) -> list[str]:
    return [each["name"] for each in bill["components"] if each["licenses"] == [{"expression": ""}]]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    version = importlib.metadata.version("weft")
    parser.add_argument("--output", type=Path, default=ROOT / "dist" / f"weft-{version}.cdx.json")
    args = parser.parse_args()
    bill = build_bill(EXTRAS)
    if unlicensed := find_unlicensed(bill):
        sys.stderr.write(f"no licence is known of {', '.join(unlicensed)}: look it up for KNOWN_LICENCES\n")
        return 1
    args.output.parent.mkdir(parents=True, exist_ok=True)
    args.output.write_text(json.dumps(bill, indent=2) + "\n")
    sys.stdout.write(f"wrote {args.output}: {len(bill['components'])} parts\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
