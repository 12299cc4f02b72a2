"""Create and upgrade the schema of a Postgres store, and the role that its principals have.

Its scripts are in `schema/`, and their numbers are the versions. `schema/0004_principals.sql` has the policies of row-level security.

Old and new nodes use one schema while a cluster is upgraded. A script that only adds things does not change `weft_store.needs`. Such
things are tables, indexes, functions, columns that have a default or may be NULL, and a new body for a function whose arguments and
result keep their types and meanings. A script that does anything else sets `needs` to its own number. Nodes that do not know this
number then drain, and do not start again. `tests/unit/store/test_postgres_schema.py` checks each script for this.
"""

import os
import re
from functools import cache
from typing import Any, Final

from weft.errors import NewerFormatError, StoreError
from weft.model.principal import check_principal_name
from weft.store.contract import UpgradeProgress
from weft.store.postgres.connection import Database

_SCRIPT = re.compile(r"(\d{4})_\w+\.sql")

# A lock for each schema, and one for the role. The first number keeps out of the way of other programs.
LOCK = "SELECT pg_advisory_xact_lock(728131, hashtext($1))"
SELECT_STATE = """SELECT to_regnamespace($1) IS NOT NULL, to_regclass($1 || '.weft_store') IS NOT NULL,
EXISTS (SELECT FROM pg_class WHERE relnamespace = to_regnamespace($1))"""
# `needs` is the number of a script: a weft that does not have it cannot use the schema. Before the third script there was no such column.
SELECT_VERSION = """SELECT version, coalesce((to_jsonb(weft_store) ->> 'needs')::integer, version)
FROM {schema}.weft_store"""
CREATE_VERSION = """CREATE TABLE {schema}.weft_store (version integer NOT NULL);
COMMENT ON TABLE {schema}.weft_store IS 'The version of this schema, which belongs to weft';
INSERT INTO {schema}.weft_store VALUES (0)"""


ROLE: Final = "weft_principal"
SELECT_ROLE: Final = f"""SELECT EXISTS (SELECT FROM pg_roles WHERE rolname = '{ROLE}'), current_user"""
IS_MEMBER: Final = f"SELECT pg_has_role(current_user, '{ROLE}', 'MEMBER')"
RESTRICT: Final = "SELECT {schema}.restrict_principals()"
SELECT_BYPASS: Final = f"SELECT rolsuper OR rolbypassrls FROM pg_roles WHERE rolname = '{ROLE}'"


@cache
def list_scripts() -> dict[int, str]:
    """Return each script by its number."""
    directory = os.path.join(os.path.dirname(__file__), "schema")
    scripts: dict[int, str] = {}
    for name in sorted(os.listdir(directory)):
        if match := _SCRIPT.fullmatch(name):
            with open(os.path.join(directory, name), encoding="utf-8") as file:
                scripts[int(match[1])] = file.read()
    return scripts


def get_newest_version() -> int:
    return max(list_scripts())


async def find_version(database: Database) -> int | None:
    """Return the version of the schema, None if there is no schema.

    A later version of weft may have made it: while a cluster is upgraded, nodes of both versions use it. Raise `NewerFormatError` if
    this version cannot use it, and `StoreError` if something else made it.
    """
    return await _find_version(database, database.fetch)


async def _find_version(database: Database, fetch: Any) -> int | None:
    schema, place = database.address.schema, database.address.place
    ((_, is_ours, is_used),) = await fetch(SELECT_STATE, schema)
    if is_ours:
        ((version, needs),) = await fetch(database.complete(SELECT_VERSION))
        if needs > get_newest_version():
            raise NewerFormatError(place, version, get_newest_version())
        return int(version)
    if is_used:
        raise StoreError(
            f"the schema {schema!r} of {place} belongs to something else",
            hint="choose another schema: add ?schema=NAME to the URL",
        )
    return None


async def prepare_schema(database: Database, progress: UpgradeProgress = lambda _done, _total: None) -> None:
    """Create the schema if there is none, and upgrade an older one, one script after the other. Others may do so as well."""
    newest = get_newest_version()
    while (await find_version(database) or 0) < newest:
        progress(await _run_next_script(database), newest)


async def _run_next_script(database: Database) -> int:
    """Run the script that the schema lacks next. Return the version that it has then."""
    async with database.open_transaction() as connection:
        # Held until the transaction ends, also behind a pooler. Whoever comes later finds the work done.
        await connection.fetch(LOCK, database.address.schema)
        version = await _find_version(database, connection.fetch)
        if version is None:
            ((exists, _, _),) = await connection.fetch(SELECT_STATE, database.address.schema)
            if not exists:
                await connection.execute(database.complete("CREATE SCHEMA {schema}"))
            await connection.execute(database.complete(CREATE_VERSION))
            version = 0
        if version < get_newest_version():
            await connection.execute(database.complete(list_scripts()[version + 1]))
            await connection.execute(
                database.complete(f"UPDATE {{schema}}.weft_store SET version = {version + 1}")
            )
            version += 1
        return version


# --- principals ---


async def prepare_role(database: Database) -> None:
    """Make sure that the role exists, that it is restricted, and that this user may take it. Raise `StoreError` if not."""
    try:
        async with database.open_transaction() as connection:
            await connection.fetch(LOCK, ROLE)  # roles belong to the whole server
            ((exists, user),) = await connection.fetch(SELECT_ROLE)
            if not exists:
                await connection.execute(f"CREATE ROLE {ROLE} NOLOGIN")
            ((is_member,),) = await connection.fetch(IS_MEMBER)
            if not is_member or not exists:
                await connection.execute(f'GRANT {ROLE} TO "{user}"')
            await connection.fetch(database.complete(RESTRICT))
            ((bypasses,),) = await connection.fetch(SELECT_BYPASS)
    except StoreError as error:
        raise StoreError(
            f"principals cannot be kept apart in {database.address.place}: {error}",
            hint=f"an administrator of the database can run: CREATE ROLE {ROLE} NOLOGIN; GRANT {ROLE} TO the user of weft",
        ) from error
    if bypasses:
        raise StoreError(
            f"the role {ROLE} of {database.address.place} bypasses row-level security",
            hint=f"an administrator of the database can run: ALTER ROLE {ROLE} NOSUPERUSER NOBYPASSRLS",
        )


async def bind_owner(database: Database, owner: str) -> Database:
    """Return a database whose statements see only what belongs to a principal. Raise `StoreError` if the server cannot do that."""
    await prepare_role(database)
    # The name has no quote: `check_principal_name` lets none pass.
    return database.bind(
        f"SET LOCAL ROLE {ROLE}; SET LOCAL weft.owner = '{check_principal_name('principal', owner)}'"
    )
