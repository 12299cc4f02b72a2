"""FileDiff: what became of one file."""

from weft.model.wire import Wire, always


class FileDiff(Wire, frozen=True, kw_only=True):
    """One file before and after, as whole texts. A binary file has empty texts and no counts."""

    file: str
    before: str = always("")
    after: str = always("")
    additions: int
    deletions: int
