"""`weft sql`: query sessions as tables."""

import argparse
import csv
import sys
from typing import Any

from weft.cli.arguments import add_format, add_place, parse_positive
from weft.cli.exit import ExitCode
from weft.cli.output import Paint, ProgressLine, to_table, write_json
from weft.cli.session import make_reader, report_damage
from weft.dataset.tables import TABLES
from weft.local.data import StoredData
from weft.model.data import MAX_ROWS, MAX_SECONDS, QueryInput, QueryResult

MAX_CELL = 80


def add_sql_arguments(parser: argparse.ArgumentParser) -> None:
    tables = ", ".join(table.name for table in TABLES)
    parser.epilog = (
        f"tables: {tables}\ncosts are exact texts: decimal_sum(cost) adds them up\n\n"
        'examples:\n  weft sql "select model_id, decimal_sum(cost) from costs group by 1"\n'
        '  weft sql "select * from costs limit 0"    show the columns of a table\n'
    )
    parser.add_argument("sql", metavar="SQL", help="one SELECT; - reads it from standard input")
    parser.add_argument("--all", action="store_true", help="the sessions of every project")
    parser.add_argument(
        "-n", "--max-rows", type=parse_positive, default=MAX_ROWS, metavar="N", help=f"return at most N rows (default {MAX_ROWS})"
    )  # fmt: skip
    parser.add_argument(
        "--seconds", type=parse_positive, default=int(MAX_SECONDS), metavar="N", help=f"end a query after N seconds (default {MAX_SECONDS:g})"
    )  # fmt: skip
    add_format(parser, ("table", "csv", "json"))
    add_place(parser)


def sql_command(args: argparse.Namespace) -> int:
    sql = sys.stdin.read() if args.sql == "-" else args.sql
    query = QueryInput(sql=sql, limit=args.max_rows, seconds=args.seconds, everywhere=args.all)
    reader = make_reader(args)
    with ProgressLine("reading sessions") as progress:
        result = StoredData(reader).query(query, progress)
    match args.format:
        case "json":
            write_json([dict(zip(result.columns, row, strict=True)) for row in result.rows])
        case "csv":
            writer = csv.writer(sys.stdout, lineterminator="\n")
            writer.writerow(result.columns)
            writer.writerows(result.rows)
        case _:
            _print_table(result)
    if result.more:
        count = f"{args.max_rows:,}"
        print(f"there are more than {count} rows; -n N shows more", file=sys.stderr)
    report_damage(reader)
    return ExitCode.DONE


def _print_table(result: QueryResult) -> None:
    rows = [[_to_cell(value) for value in row] for row in result.rows]
    numbers = [
        name
        for index, name in enumerate(result.columns)
        if rows and all(isinstance(row[index], int | float | None) for row in result.rows)
    ]
    for line in to_table(result.columns, rows, Paint(sys.stdout), right=" ".join(numbers)):
        print(line)


def _to_cell(value: Any) -> str:
    text = "" if value is None else str(value)
    line = " ".join(text.split())
    return line if len(line) <= MAX_CELL else line[: MAX_CELL - 1] + "…"
