"""The database engine that came with Python: databases are the store's, so the store says which it is."""

import sqlite3


def sqlite_version() -> str:
    return sqlite3.sqlite_version
