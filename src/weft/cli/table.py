"""Tables: columns as wide as what is in them, the last one free."""

from collections.abc import Iterator, Sequence

from weft.cli.paint import Paint, plain


def to_table(
    head: Sequence[str], rows: Sequence[Sequence[str]], paint: Paint, *, right: str = ""
) -> Iterator[str]:
    """Lines of a table; the columns named in `right` are set to the right."""
    shown = [[plain(cell).replace("\n", " ") for cell in row] for row in rows]
    widths = [max(len(line[at]) for line in (head, *shown)) for at in range(len(head))]

    def laid(cells: Sequence[str]) -> str:
        parts = [
            cell.rjust(width) if name in right.split() else cell.ljust(width)
            for cell, width, name in zip(cells, widths, head, strict=True)
        ]
        return "  ".join(parts).rstrip()

    yield paint.bold(laid(head))
    for row in shown:
        yield laid(row)
