"""Nodes of two versions on one Postgres: nodes of the previous version keep working after a release that only adds to the schema."""

import shutil
import signal
from pathlib import Path

import pytest

import weft
from given.cluster import ClusterHarness, EventListener, Node, fold, open_cluster, wait_until
from given.http_server import prompt
from weft.provider.scripted import Say
from weft.store.postgres.migration import get_newest_version

pytestmark = pytest.mark.slow

SCRIPTS = {"speak": [[Say(text="word " * 40), Say(text="and the end")]]}
NEXT_VERSION = get_newest_version() + 1
# What a release may add while nodes of the previous version run: see `weft.store.postgres.migration`.
ADDITIVE = """
CREATE TABLE {schema}.loom (session text PRIMARY KEY, warp text NOT NULL);
CREATE INDEX session_of_next ON {schema}.session (directory, id);
ALTER TABLE {schema}.session ADD COLUMN next_note text NOT NULL DEFAULT '';
ALTER TABLE {schema}.delivery ADD COLUMN next_note text NOT NULL DEFAULT '';
ALTER TABLE {schema}.event ADD COLUMN next_note text;
ALTER TABLE {schema}.node ADD COLUMN next_note text;
ALTER TABLE {schema}.lease ADD COLUMN next_note text;
CREATE FUNCTION {schema}.weave(given integer) RETURNS integer LANGUAGE sql AS $$ SELECT given + 1 $$;
"""


def make_next_version(tmp_path: Path) -> Path:
    """Write the code of the next version, which is this one with one more script, and return its path."""
    package = tmp_path / "next" / "weft"
    shutil.copytree(Path(weft.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__"))
    script = package / "store" / "postgres" / "schema" / f"{NEXT_VERSION:04}_next.sql"
    script.write_text(ADDITIVE)
    return package.parent


def converse(asked: Node, other: Node, heard: EventListener) -> None:
    """Prompt a session on one node, and check that the other one shows it."""
    session = asked.make_session()
    asked.post(f"/session/{session}/message", prompt("speak"))
    heard.wait_for("session.idle", session)
    assert fold(heard.of(session)) == asked.list_messages(session) == other.list_messages(session)


def test_a_node_of_the_previous_version_runs_beside_a_new_one_until_a_release_excludes_it(
    tmp_path: Path,
) -> None:
    with open_cluster(tmp_path, SCRIPTS) as cluster:
        old = cluster.start("old")
        at_old = EventListener(old.url)
        before = old.make_session()
        old.post(f"/session/{before}/message", prompt("speak"))
        needs = "SELECT needs FROM {schema}.weft_store"
        (needed,) = cluster.query(needs)
        # The new node upgrades the schema while the old one runs.
        new = cluster.start("new", PYTHONPATH=str(make_next_version(tmp_path)))
        version = "SELECT version FROM {schema}.weft_store"
        assert (cluster.query(version), cluster.query(needs)) == ([str(NEXT_VERSION)], [needed])
        at_new = EventListener(new.url)
        converse(old, new, at_new)
        converse(new, old, at_old)
        # It may also start again, and sees what the other one wrote.
        assert old.process.end(signal.SIGTERM) == 0
        old = cluster.start("old")
        converse(old, new, at_new)
        assert new.list_messages(before) == old.list_messages(before)
        # A release that excludes old nodes ends them: they accept nothing more, and say why.
        cluster.query(f"UPDATE {{schema}}.weft_store SET needs = {NEXT_VERSION}")
        old.process.wait_for_note("a newer one upgraded the store")
        assert old.process.process.wait(60) == 0
        wait_until(lambda: len(read_names(cluster)) == 1, "the end of the old node")
        session = new.make_session()
        new.post(f"/session/{session}/message", prompt("speak"))
        refused = cluster.run("cluster", "status")
        assert (refused.returncode, "upgrade weft" in refused.stderr) == (1, True)


def read_names(cluster: ClusterHarness) -> list[str]:
    return cluster.query("SELECT name FROM {schema}.node")
