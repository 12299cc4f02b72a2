"""The file that stores logins at MCP servers."""

import json
from pathlib import Path

import pytest

from weft.errors import ConfigError
from weft.tool.mcp.login import McpLoginStore

HERE, ELSEWHERE = "https://a.example/mcp", "https://b.example/mcp"


def test_a_stored_login_is_valid_for_its_address_only(tmp_path: Path) -> None:
    path = tmp_path / "mcp-auth.json"
    book = McpLoginStore(str(path))
    book.put("a", HERE, {"tokens": {"accessToken": "x"}})
    book.put("a", HERE, {"clientInfo": {"clientId": "y"}})
    whole = {"tokens": {"accessToken": "x"}, "clientInfo": {"clientId": "y"}, "serverUrl": HERE}
    assert (book.find("a", HERE), book.find("a", ELSEWHERE), book.find("b", HERE)) == (whole, {}, {})
    book.put("a", ELSEWHERE, {"clientInfo": {"clientId": "z"}})
    assert json.loads(path.read_text()) == {"a": {"clientInfo": {"clientId": "z"}, "serverUrl": ELSEWHERE}}
    assert path.stat().st_mode & 0o777 == 0o600


def test_fields_written_by_opencode_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "mcp-auth.json"
    path.write_text(json.dumps({"a": {"serverUrl": HERE, "codeVerifier": "v"}, "b": {"tokens": {}}, "c": 3}))
    book = McpLoginStore(str(path))
    book.put("a", HERE, {"tokens": {"accessToken": "x"}})
    assert json.loads(path.read_text()) == {
        "a": {"serverUrl": HERE, "codeVerifier": "v", "tokens": {"accessToken": "x"}},
        "b": {"tokens": {}},
        "c": 3,
    }
    assert book.list_names() == ["a"]
    assert (book.remove("a"), book.remove("a")) == (True, False)


def test_reading_stores_nothing(tmp_path: Path) -> None:
    book = McpLoginStore(str(tmp_path / "none" / "mcp-auth.json"))
    assert (book.find("a", HERE), book.list_names(), book.remove("a")) == ({}, [], False)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("raw", ["{", "[]", '"secret"'])
def test_a_broken_file_is_named_and_not_quoted(tmp_path: Path, raw: str) -> None:
    path = tmp_path / "mcp-auth.json"
    path.write_text(raw)
    with pytest.raises(ConfigError, match=r"mcp-auth\.json") as raised:
        McpLoginStore(str(path)).list_names()
    assert "secret" not in str(raised.value)
