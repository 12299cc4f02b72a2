"""Our OpenAPI document is generated from the routes, agrees with OpenCode's, and every route is in the manual."""

import json
import re
from pathlib import Path
from typing import Any

from jsonschema.validators import Draft202012Validator

from weft.server.openapi import to_document
from weft.server.routes.table import list_routes

ROOT = Path(__file__).parents[3]
GOLDEN = ROOT / "tests" / "golden" / "server" / "opencode-1.1.34.txt"
ROW = re.compile(r"^\| (?P<method>[A-Z]+) \| `(?P<path>[^`]+)` \| (?P<word>[^|]+) \|", re.MULTILINE)

DOCUMENT = to_document(list_routes(), version="1")


def ours() -> dict[tuple[str, str], str]:
    return {
        (method.upper(), path): operation["operationId"]
        for path, methods in DOCUMENT["paths"].items()
        for method, operation in methods.items()
    }


def theirs() -> dict[tuple[str, str], str]:
    rows = (line.split() for line in GOLDEN.read_text().splitlines())
    return {(method, path): name for method, path, name in rows}


def test_every_operation_of_opencode_is_there_under_its_name() -> None:
    assert theirs().items() <= ours().items()


def test_every_route_stands_in_the_manual_with_what_is_true_of_it() -> None:
    rows = {
        (found["method"], found["path"]): found["word"].strip()
        for found in ROW.finditer((ROOT / "docs" / "reference" / "http.md").read_text())
    }
    assert set(rows) == set(ours()) | set(theirs())
    assert {place for place in theirs() if rows[place] == "absent"} == set(theirs()) - set(ours())
    assert {rows[place] for place in theirs()} <= {"same", "differs", "absent"}


def test_names_are_given_once() -> None:
    names = list(ours().values())
    assert len(names) == len(set(names))


def test_every_reference_leads_somewhere_and_every_schema_is_one() -> None:
    schemas = DOCUMENT["components"]["schemas"]
    said = set(re.findall(r'"#/components/schemas/([^"]+)"', json.dumps(DOCUMENT)))
    assert said <= set(schemas)
    for schema in schemas.values():
        Draft202012Validator.check_schema(schema)


def test_no_place_of_our_own_is_told_of() -> None:
    assert "$extra" not in json.dumps(DOCUMENT)


def test_exact_decimals_are_the_numbers_they_are_sent_as() -> None:
    spent = DOCUMENT["components"]["schemas"]["Spent"]["properties"]["cost"]
    assert spent["type"] == "number"
    assert '"format": "decimal"' not in json.dumps(DOCUMENT)


def test_queries_say_what_they_need() -> None:
    find: dict[str, Any] = DOCUMENT["paths"]["/find/file"]["get"]
    assert {each["name"]: each["required"] for each in find["parameters"]} == {
        "directory": False,
        "query": True,
        "dirs": False,
        "type": False,
        "limit": False,
    }


def test_every_operation_says_what_it_is_about() -> None:
    for methods in DOCUMENT["paths"].values():
        for operation in methods.values():
            assert operation["summary"]
            assert {"4XX", "5XX"} <= set(operation["responses"])
