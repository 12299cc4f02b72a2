"""Where the snapshots of a store's sessions are, whichever kind of store it is."""

import os
from pathlib import Path

from weft.host.paths import paths_from
from weft.snapshot.location import choose_base, find_opencode_snapshots, get_default_base


def test_the_default_store_has_the_default_directory_and_every_other_store_its_own(tmp_path: Path) -> None:
    paths = paths_from(os.environ)
    os.makedirs(paths.data)
    os.symlink(paths.data, tmp_path / "link")
    assert choose_base(paths, f"file:{paths.storage}") == get_default_base(paths.data)
    assert choose_base(paths, f"file:{tmp_path}/link/storage") == get_default_base(paths.data)
    others = [
        f"file:{tmp_path}/storage",
        f"sqlite:{tmp_path}/storage",
        "postgres://one/weft",
        "postgres://two/weft",
        "memory:",
    ]
    bases = {choose_base(paths, url) for url in others}
    assert len(bases) == len(others)
    assert all(base.startswith(f"{get_default_base(paths.data)}-") for base in bases)


def test_another_login_to_the_same_server_has_the_same_snapshots() -> None:
    paths = paths_from(os.environ)
    urls = ("postgres://ada:one@host:5432/weft", "postgres://bob@host:5432/weft?sslmode=require")
    assert len({choose_base(paths, url) for url in urls}) == 1


def test_snapshots_of_opencode_are_next_to_its_tree(tmp_path: Path) -> None:
    paths = paths_from(os.environ)
    (tmp_path / "weft.db").touch()
    assert find_opencode_snapshots(paths, f"file:{tmp_path}/storage") == f"{tmp_path}/snapshot"
    databases = (f"sqlite:{tmp_path}/weft.db", f"sqlite:{tmp_path}/not-yet.db", "postgres://host/weft")
    for url in (*databases, "memory:"):
        assert find_opencode_snapshots(paths, url) == paths.snapshots
