"""What was spent, in words for a person: never a nought for what is unknown (pure)."""

from weft.model.spending import Spent


def tokens(spent: Spent) -> str:
    read, written = taken_in(spent), spent.output + spent.reasoning
    cached = f" ({spent.cache_read:,} cached)" if spent.cache_read else ""
    known = f"{read:,} tokens in{cached}, {written:,} out"
    if spent.counted:
        return known
    return f"{known} and more: not every answer was counted" if read or written else "tokens unknown"


def taken_in(spent: Spent) -> int:
    """All that the models read, cached or not."""
    return spent.input + spent.cache_read + spent.cache_write


def dollars(spent: Spent) -> str:
    if spent.priced:
        return f"${spent.cost:.4f}"
    return f"${spent.cost:.4f} and more: not all of the cost is known" if spent.cost else "cost unknown"
