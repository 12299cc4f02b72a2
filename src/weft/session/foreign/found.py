"""What an importer finds: sessions lying elsewhere, each to be read when its turn comes."""

from collections.abc import Callable, Iterator
from typing import Protocol

from msgspec import Struct

from weft.model.parcel import Counts, Parcel
from weft.model.project import Project


class Trouble(Struct, frozen=True, kw_only=True):
    """Something that could not be read, and was left where it is."""

    where: str
    reason: str


class Read(Struct, frozen=True, kw_only=True):
    """A session as it was read. `counted` is what its source holds, counted by other means than reading it."""

    parcel: Parcel
    counted: Counts
    troubles: tuple[Trouble, ...] = ()


class Found(Struct, frozen=True, kw_only=True):
    """A session elsewhere. Reading raises `DocumentError` or `InvalidInputError` if nothing can be made of it."""

    name: str
    read: Callable[[], Read]


class Origin(Protocol):
    """Somewhere sessions come from. Looking changes nothing there."""

    def projects(self) -> list[Project]:
        """The projects that its sessions name."""
        ...

    def found(self) -> list[Found]:
        """Its sessions, parents before children."""
        ...

    def troubles(self) -> Iterator[Trouble]:
        """What could not even be found: known once `found` has been asked."""
        ...
