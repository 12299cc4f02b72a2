"""The scripts of the Postgres schema: a script that does not raise `needs` only makes changes that nodes of the previous version tolerate."""

import re

import pytest

from weft.store.postgres.migration import list_scripts

# Old nodes run beside scripts from here on: before the third there was no `needs`.
FIRST_SHARED = 4
COMMENT = re.compile(r"--[^\n]*")
# The body of a function runs only when it is called.
BODY = re.compile(r"\$\$.*?\$\$", re.DOTALL)
RAISES_NEEDS = re.compile(r"SET\s+needs\s*=\s*(\d+)", re.IGNORECASE)
BREAKING = (
    re.compile(r"\bDROP\b", re.IGNORECASE),
    re.compile(r"\bRENAME\b", re.IGNORECASE),
    re.compile(r"\bALTER\s+COLUMN\b", re.IGNORECASE),
    re.compile(r"\bADD\s+(?:CONSTRAINT|CHECK|UNIQUE|PRIMARY|FOREIGN|EXCLUDE)\b", re.IGNORECASE),
    re.compile(r"\bCREATE\s+UNIQUE\s+INDEX\b", re.IGNORECASE),
    # Rows that old nodes insert have no value for it.
    re.compile(r"\bADD\s+COLUMN\b(?=[^,;]*\bNOT\s+NULL\b)(?![^,;]*\bDEFAULT\b)", re.IGNORECASE),
    re.compile(r"\b(?:UPDATE|DELETE)\b", re.IGNORECASE),
)


def find_breaking(script: str) -> list[str]:
    """Return what a script contains that nodes of the previous version may not tolerate."""
    plain = BODY.sub("", COMMENT.sub("", script))
    return [found[0] for pattern in BREAKING if (found := pattern.search(plain))]


@pytest.mark.parametrize("number", [number for number in list_scripts() if number >= FIRST_SHARED])
def test_a_script_only_adds_or_says_that_old_nodes_cannot_use_it(number: int) -> None:
    script = list_scripts()[number]
    raised = RAISES_NEEDS.search(script)
    if raised is None:
        assert find_breaking(script) == []
    else:
        assert int(raised[1]) == number


@pytest.mark.parametrize(
    "script",
    [
        "CREATE TABLE {schema}.loom (id text PRIMARY KEY, warp text NOT NULL);",
        "ALTER TABLE {schema}.session ADD COLUMN warp text, ADD COLUMN weft text NOT NULL DEFAULT '';",
        "CREATE INDEX one ON {schema}.session (id); -- it will DROP nothing",
        "CREATE OR REPLACE FUNCTION {schema}.f() RETURNS void LANGUAGE sql AS $$ DELETE FROM {schema}.event $$;",
    ],
)
def test_a_script_that_adds_is_allowed(script: str) -> None:
    assert find_breaking(script) == []


@pytest.mark.parametrize(
    "script",
    [
        "ALTER TABLE {schema}.session DROP COLUMN title;",
        "ALTER TABLE {schema}.session RENAME COLUMN title TO name;",
        "ALTER TABLE {schema}.session ALTER COLUMN title TYPE bytea;",
        "ALTER TABLE {schema}.session ADD COLUMN warp text NOT NULL;",
        "ALTER TABLE {schema}.session ADD CONSTRAINT short CHECK (length(title) < 9);",
        "CREATE UNIQUE INDEX one ON {schema}.session (directory);",
        "DROP FUNCTION {schema}.take_deliveries(text, integer);",
        "UPDATE {schema}.session SET title = '';",
    ],
)
def test_a_script_that_changes_what_old_nodes_use_is_noticed(script: str) -> None:
    assert len(find_breaking(script)) == 1
