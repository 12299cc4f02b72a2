"""Our OpenAPI document is generated from the routes, agrees with OpenCode's, and every route is in the manual."""

import json
import re
from pathlib import Path
from typing import Any

from jsonschema.validators import Draft202012Validator

from weft.server.openapi import to_document
from weft.server.routes.table import list_routes
from weft.testing.ids import seeded_mint
from weft.testing.store_samples import NOW

ROOT = Path(__file__).parents[3]
GOLDEN = ROOT / "tests" / "golden" / "server"
ROW = re.compile(r"^\| (?P<method>[A-Z]+) \| `(?P<path>[^`]+)` \| (?P<word>[^|]+) \|", re.MULTILINE)

DOCUMENT = to_document(list_routes(), version="1")


def list_own_operations() -> dict[tuple[str, str], str]:
    return {
        (method.upper(), path): operation["operationId"]
        for path, methods in DOCUMENT["paths"].items()
        for method, operation in methods.items()
    }


def list_opencode_operations() -> dict[tuple[str, str], str]:
    return read_operations("opencode-1.1.34.txt")


def read_operations(name: str) -> dict[tuple[str, str], str]:
    rows = (line.split() for line in (GOLDEN / name).read_text().splitlines())
    return {(method, path): name for method, path, name in rows}


def test_every_operation_of_opencode_is_served_under_its_name() -> None:
    assert list_opencode_operations().items() <= list_own_operations().items()


def test_every_other_operation_keeps_its_name() -> None:
    opencode = list_opencode_operations()
    others = {place: name for place, name in list_own_operations().items() if place not in opencode}
    assert others == read_operations("other-operations.txt"), "clients are generated from these names"


def test_every_route_is_in_the_manual_with_its_properties() -> None:
    rows = {
        (found["method"], found["path"]): found["word"].strip()
        for found in ROW.finditer((ROOT / "docs" / "reference" / "http.md").read_text())
    }
    routes = set(list_own_operations()) | set(list_opencode_operations())
    assert set(rows) == routes, "docs/reference/http.md has one line for each route"
    assert {place for place in list_opencode_operations() if rows[place] == "absent"} == set(
        list_opencode_operations()
    ) - set(list_own_operations())
    assert {rows[place] for place in list_opencode_operations()} <= {"same", "differs", "absent"}


def test_operation_ids_are_unique() -> None:
    names = list(list_own_operations().values())
    assert len(names) == len(set(names))


def test_every_reference_resolves_and_every_schema_is_valid() -> None:
    schemas = DOCUMENT["components"]["schemas"]
    said = set(re.findall(r'"#/components/schemas/([^"]+)"', json.dumps(DOCUMENT)))
    assert said <= set(schemas)
    for schema in schemas.values():
        Draft202012Validator.check_schema(schema)


def test_the_document_does_not_mention_our_internal_field() -> None:
    assert "$extra" not in json.dumps(DOCUMENT)


def test_the_pattern_of_every_id_in_a_path_matches_the_ids_that_are_made() -> None:
    mint = seeded_mint(lambda: NOW)
    made = {
        "session": mint.session(),
        "message": mint.message(),
        "part": mint.part(),
        "permission": mint.permission(),
        "permissions": mint.permission(),
        "question": mint.question(),
        "client-tool": mint.tool_request(),
        "grant": mint.grant(),
        "pty": mint.pty(),
    }
    checked: set[str] = set()
    for path, methods in DOCUMENT["paths"].items():
        nouns = {name: noun for noun, name in re.findall(r"([^/]+)/\{(\w+)\}", path)}
        for parameter in (each for operation in methods.values() for each in operation["parameters"]):
            if pattern := parameter["schema"].get("pattern") if parameter["in"] == "path" else None:
                assert re.search(pattern, made[nouns[parameter["name"]]]), (path, pattern)
                checked.add(nouns[parameter["name"]])

    assert checked == set(made)


def test_exact_decimals_are_numbers() -> None:
    spent = DOCUMENT["components"]["schemas"]["Spent"]["properties"]["cost"]
    assert spent["type"] == "number"
    assert '"format": "decimal"' not in json.dumps(DOCUMENT)


def test_required_query_parameters_are_marked() -> None:
    find: dict[str, Any] = DOCUMENT["paths"]["/find/file"]["get"]
    assert {each["name"]: each["required"] for each in find["parameters"]} == {
        "directory": False,
        "query": True,
        "dirs": False,
        "type": False,
        "limit": False,
    }


def test_every_operation_has_a_summary() -> None:
    for methods in DOCUMENT["paths"].values():
        for operation in methods.values():
            assert operation["summary"]
            assert {"4XX", "5XX"} <= set(operation["responses"])
