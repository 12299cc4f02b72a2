"""One of several by its id, by the beginning of it, or as the last."""

from collections.abc import Sequence

from weft.errors import AmbiguousError, NotFoundError

LAST = "last"


def choose(kind: str, given: str, *, here: Sequence[str], ids: Sequence[str], hint: str) -> str:
    """The id that is meant, of all there are, oldest first. The last is one of those `here`, in this project."""
    if given == LAST and here:
        return here[-1]
    if given in ids:
        return given
    found = [id for id in ids if given and id.startswith(given)]
    if not found:
        raise NotFoundError(kind, given, hint=hint)
    if len(found) > 1:
        raise AmbiguousError(kind, given, found)
    return found[0]
