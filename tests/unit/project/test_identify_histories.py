"""Random histories of repositories: no project is lost, and no two are mixed up."""

from collections.abc import Callable
from itertools import count

from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct
from msgspec.structs import replace

from given.examples import examples
from weft.model.ids import GLOBAL_PROJECT, ProjectID
from weft.model.project import Project
from weft.project.facts import (
    Checkout,
    CheckoutFacts,
    Inode,
    KnownProjects,
    LastLocation,
    LastSeen,
    Resolution,
)
from weft.project.identify import identify, list_candidates, needs_roots
from weft.project.resolve import to_resolution

PATHS = [f"/{letter}" for letter in "pqrst"]
ROOTS = [digit * 40 for digit in "123"]


class Folder(Struct, frozen=True, kw_only=True):
    """A directory on a simulated disk; `soul` identifies it across moves."""

    soul: int
    inode: str
    root: str
    id: str = ""
    git: bool = True


class World:
    def __init__(self) -> None:
        self.disk: dict[str, Folder] = {}
        self.projects: dict[ProjectID, Project] = {}
        self.last_seen: dict[ProjectID, LastSeen] = {}
        self.number = count(1)

    # what people do

    def init(self, path: str, root: str) -> None:
        self.disk[path] = Folder(soul=next(self.number), inode=str(next(self.number)), root=root)

    def copy(self, source: str, target: str) -> None:
        soul, inode = next(self.number), str(next(self.number))
        self.disk[target] = replace(self.disk[source], soul=soul, inode=inode)

    def move(self, source: str, target: str) -> None:
        self.disk[target] = self.disk.pop(source)

    def edit(self, path: str, how: Callable[[Folder], Folder]) -> None:
        self.disk[path] = how(self.disk[path])

    # what we do

    def inspect(self, path: str) -> Checkout:
        it = self.disk[path]
        inode = Inode(number=it.inode, device="1")
        if not it.git:
            return Checkout(directory=path)
        return Checkout(
            directory=path,
            top=path,
            main=path,
            common_dir=f"{path}/.git",
            is_valid=True,
            id=it.id,
            inode=inode,
        )

    def inspect_last_location(self, path: str) -> LastLocation:
        it = self.disk.get(path)
        if it is None:
            return LastLocation()
        inode = Inode(number=it.inode, device="1")
        return LastLocation(exists=True, common_dir=f"{path}/.git", id=it.id if it.git else "", inode=inode)

    def resolve(self, path: str) -> Resolution:
        at, known = self.inspect(path), KnownProjects(projects=self.projects, last_seen=self.last_seen)
        roots = (self.disk[path].root,) if needs_roots(at, known) else None
        last_locations = {
            id: self.inspect_last_location(home) for id, home in list_candidates(at, known, roots).items()
        }
        facts = CheckoutFacts(checkout=at, roots=roots, last_locations=last_locations)
        return to_resolution(
            identify(facts, known), facts, known, existing_sandboxes=(), now=next(self.number)
        )

    def open(self, path: str) -> ProjectID:
        found = self.resolve(path)
        id = found.place.project.id
        if found.project is not None:
            self.projects[id] = found.project
        if found.last_seen is not None:
            self.last_seen[id] = found.last_seen
        if found.id_file is not None:
            self.disk[path] = replace(self.disk[path], id=found.id_file.id)
        again = self.resolve(path)
        assert again.place == found.place or id == GLOBAL_PROJECT
        assert (again.project, again.last_seen, again.id_file) == (None, None, None)
        return id


def change_disk(world: World, draw: Callable[..., object], *, strips: bool = True) -> None:
    """Apply one random change to the disk."""
    taken = sorted(world.disk)
    free = [path for path in PATHS if path not in world.disk]
    repositories = [path for path in taken if world.disk[path].git]
    deeds: dict[str, Callable[[], None]] = {}

    def pick(paths: list[str]) -> str:
        return str(draw(st.sampled_from(paths)))

    if free:
        deeds["init"] = lambda: world.init(pick(free), pick(ROOTS))
    if repositories:
        new_root = {"root": pick(ROOTS)}
        deeds["rewrite"] = lambda: world.edit(pick(repositories), lambda it: replace(it, **new_root))
        deeds["reinit"] = lambda: world.edit(pick(taken), lambda it: replace(it, git=True, id="", **new_root))
        deeds["lose id"] = lambda: world.edit(pick(repositories), lambda it: replace(it, id=""))
        deeds["strip"] = lambda: world.edit(pick(repositories), lambda it: replace(it, git=False, id=""))
    if taken:
        deeds["remove"] = lambda: world.disk.pop(pick(taken)) and None
    if repositories and free:
        deeds["copy"] = lambda: world.copy(pick(repositories), pick(free))
        deeds["move"] = lambda: world.move(pick(repositories), pick(free))
    if not strips:
        deeds.pop("strip", None)
    deeds[str(draw(st.sampled_from(sorted(deeds))))]()


@examples(150)
@given(st.data())
def test_every_directory_keeps_its_own_project(data: st.DataObject) -> None:
    world = World()
    named: dict[int, ProjectID] = {}
    for _ in range(data.draw(st.integers(1, 8))):
        change_disk(world, data.draw)
        order = data.draw(st.permutations(sorted(world.disk)))
        ids = {path: world.open(path) for path in order}
        assert {path: world.open(path) for path in order} == ids
        assert len(set(ids.values())) == len(ids)
        for path, id in ids.items():
            assert named.setdefault(world.disk[path].soul, id) == id


@examples(150)
@given(st.data())
def test_no_two_directories_share_a_project_after_unseen_changes(data: st.DataObject) -> None:
    world = World()
    for _ in range(data.draw(st.integers(1, 4))):
        for _ in range(data.draw(st.integers(1, 4))):
            # A directory that lost its `.git` is known by its path alone. If the repository that was there has moved
            # unseen, both have its project until the moved one is opened: until then they cannot be told apart.
            change_disk(world, data.draw, strips=False)
        order = data.draw(st.permutations(sorted(world.disk)))
        ids = {path: world.open(path) for path in order}
        assert {path: world.open(path) for path in order} == ids
        named = [id for id in ids.values() if id != GLOBAL_PROJECT]
        assert len(set(named)) == len(named)
