"""Addresses of stores: paths become absolute, everything else is left to the store."""

import os
from pathlib import Path

import pytest

from weft.config.store_address import get_default_store_url, resolve_store_url
from weft.errors import InvalidInputError
from weft.host.paths import paths_from


def resolve(address: str | None) -> str:
    return resolve_store_url({}, paths_from(os.environ), address)


def test_the_default_address_is_the_tree_of_opencode() -> None:
    paths = paths_from(os.environ)
    assert resolve(None) == get_default_store_url(paths) == f"file:{paths.storage}"


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("history", "file:{here}/history"),
        ("file:history", "file:{here}/history"),
        ("./a:b", "file:{here}/a:b"),
        ("~/history", "file:{home}/history"),
        ("file:~/history", "file:{home}/history"),
        ("file:///a%20b", "file:/a b"),
        ("file:////a%2520b", "file:/a%20b"),
        ("//a%20b", "file:/a%20b"),
        ("sqlite:weft.db", "sqlite:{here}/weft.db"),
        ("sqlite:~/weft.db", "sqlite:{home}/weft.db"),
        ("sqlite:/a/../weft.db", "sqlite:/weft.db"),
        ("memory:", "memory:"),
        ("postgres://me:pw@host/weft?sslmode=require", "postgres://me:pw@host/weft?sslmode=require"),
        ("postgresql:///weft", "postgresql:///weft"),
        ("ftp://example.test/x", "ftp://example.test/x"),
    ],
)
def test_a_path_becomes_absolute_and_other_addresses_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, address: str, expected: str
) -> None:
    monkeypatch.chdir(tmp_path)
    assert resolve(address) == expected.format(here=tmp_path, home=os.environ["HOME"])


@pytest.mark.parametrize("address", ["memory", "sqlite", "postgres", "file"])
def test_a_kind_of_store_without_a_colon_is_a_directory_only_if_it_exists(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidInputError) as refused:
        resolve(address)
    assert refused.value.hint == f"did you mean {address}: ?"
    (tmp_path / address).mkdir()
    assert resolve(address) == f"file:{tmp_path / address}"


@pytest.mark.parametrize("address", ["file:", "sqlite:"])
def test_the_address_of_a_store_on_disk_needs_a_path(address: str) -> None:
    with pytest.raises(InvalidInputError, match="needs a path"):
        resolve(address)


def test_the_hint_for_an_sqlite_memory_database_names_the_memory_store() -> None:
    with pytest.raises(InvalidInputError) as refused:
        resolve("sqlite::memory:")
    assert refused.value.hint == "use memory:"
