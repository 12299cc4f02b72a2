"""Write the bill of materials of a release: all that is installed or shipped with weft, with version and licence, as CycloneDX 1.6.

    make sbom

The extras are those of `pyproject.toml`. Python packages are those of the environment that runs this; of one that is not installed,
the bill has the name and the versions that are asked for. The vendored scripts of the page are those of their manifest. A part that
is here without a known licence is an error: nobody may ship what nobody may use.
"""

import argparse
import importlib.metadata
import json
import sys
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from vendor import read_manifest

ROOT = Path(__file__).parents[1]
# Nobody installs these to use weft: the bill has what they ask for, but not the parts.
FOR_DEVELOPERS: Final = frozenset({"dev", "docs"})
# Licences of packages whose metadata name none that a program can read, looked up in their files.
KNOWN_LICENCES = {
    "agent-client-protocol": "Apache-2.0",
    "apsw": "Zlib",
    "jsonpointer": "BSD-3-Clause",
    "prompt-toolkit": "BSD-3-Clause",
}
CLASSIFIED = {
    "License :: OSI Approved :: Apache Software License": "Apache-2.0",
    "License :: OSI Approved :: MIT License": "MIT",
}


def read_project() -> dict[str, Any]:
    """Return the table `project` of `pyproject.toml`."""
    return dict(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"])


def list_requirements(lines: Iterable[str], extras: Sequence[str] = ()) -> list[Requirement]:
    """Return the requirements that apply here, with these extras."""
    needed = [Requirement(line) for line in lines]
    return [
        each
        for each in needed
        if each.marker is None or any(each.marker.evaluate({"extra": extra}) for extra in ("", *extras))
    ]


def list_own_requirements(project: Mapping[str, Any]) -> list[Requirement]:
    """Return what weft needs, with all extras for those who use it."""
    extras: Mapping[str, list[str]] = project["optional-dependencies"]
    lines = [line for extra, lines in extras.items() if extra not in FOR_DEVELOPERS for line in lines]
    return list_requirements([*project["dependencies"], *lines])


def collect_packages(name: str, own: Sequence[Requirement]) -> dict[str, list[Requirement]]:
    """Return every package that one with these requirements needs, directly or not, each with its requirements.

    One that is not installed has none: they are not known.
    """
    found = {name: {str(each): each for each in own}}
    waiting = list(own)
    while waiting:
        wanted = waiting.pop()
        package = canonicalize_name(wanted.name)
        known = found.setdefault(package, {})
        try:
            lines = importlib.metadata.requires(package) or ()
        except importlib.metadata.PackageNotFoundError:
            continue
        new = [each for each in list_requirements(lines, tuple(wanted.extras)) if str(each) not in known]
        known.update((str(each), each) for each in new)
        waiting += new
    return {package: list(needed.values()) for package, needed in found.items()}


def find_licence(name: str) -> str:
    """Return the licence of an installed package as an SPDX expression, empty if its metadata tell none."""
    metadata = importlib.metadata.metadata(name)
    stated = metadata["License-Expression"] or KNOWN_LICENCES.get(name)
    if stated:
        return stated
    classified = [CLASSIFIED[each] for each in metadata.get_all("Classifier") or () if each in CLASSIFIED]
    return " OR ".join(classified) or metadata["License"] or ""


def describe_package(name: str, constraints: Iterable[str] = ()) -> dict[str, Any]:
    """Describe a package. Of one that is not installed, only its name and the versions that are asked for are known."""
    described = {"type": "library", "bom-ref": name, "name": name}
    try:
        version = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        asked_for = [{"name": "weft:requires", "value": each} for each in sorted(constraints) if each]
        licence = KNOWN_LICENCES.get(name)
        licences = {"licenses": [{"expression": licence}]} if licence else {}
        return {**described, "purl": f"pkg:pypi/{name}", **licences, "properties": asked_for}
    licences = {"licenses": [{"expression": find_licence(name)}]}
    return {**described, "version": version, "purl": f"pkg:pypi/{name}@{version}", **licences}


def describe_program(project: Mapping[str, Any]) -> dict[str, Any]:
    """Describe weft itself, with what each of its extras asks for."""
    extras = [
        {"name": f"weft:extra:{extra}", "value": line}
        for extra, lines in sorted(project["optional-dependencies"].items())
        for line in lines
    ]
    return {**describe_package("weft"), "type": "application", "properties": extras}


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


def build_bill(project: Mapping[str, Any]) -> dict[str, Any]:
    """Return the bill of materials. It tells no time, so that equal parts make an equal file."""
    packages = collect_packages("weft", list_own_requirements(project))
    constraints: dict[str, set[str]] = {name: set() for name in packages}
    for each in (each for needed in packages.values() for each in needed):
        constraints[canonicalize_name(each.name)].add(str(each.specifier))
    components = [describe_package(name, constraints[name]) for name in sorted(packages) if name != "weft"]
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": describe_program(project)},
        "components": [*components, *(describe_script(entry) for entry in read_manifest())],
        "dependencies": [
            {"ref": name, "dependsOn": sorted({canonicalize_name(each.name) for each in needed})}
            for name, needed in sorted(packages.items())
        ],
    }


def find_unlicensed(bill: Mapping[str, Any]) -> list[str]:
    return [each["name"] for each in bill["components"] if each.get("licenses") == [{"expression": ""}]]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    version = importlib.metadata.version("weft")
    parser.add_argument("--output", type=Path, default=ROOT / "dist" / f"weft-{version}.cdx.json")
    args = parser.parse_args()
    bill = build_bill(read_project())
    if unlicensed := find_unlicensed(bill):
        sys.stderr.write(f"no licence is known of {', '.join(unlicensed)}: look it up for KNOWN_LICENCES\n")
        return 1
    args.output.parent.mkdir(parents=True, exist_ok=True)
    args.output.write_text(json.dumps(bill, indent=2) + "\n")
    sys.stdout.write(f"wrote {args.output}: {len(bill['components'])} parts\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
