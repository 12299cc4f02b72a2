"""A number with its noun, as people say it (pure)."""


def plural(number: int, one: str, many: str = "") -> str:
    """`1 file`, `2 files`, `1,200 files`; `many` is the plural of a noun that takes no `s`."""
    return f"{number:,} {one if number == 1 else many or f'{one}s'}"
