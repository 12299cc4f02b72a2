"""From a checkout to its project: look at what may be the same, think, and say what to store."""

from weft.errors import GitError
from weft.project.facts import Checkout, Facts, History, Known, Resolution
from weft.project.identify import identify, rivals, wants_roots
from weft.project.look import look_home, stands
from weft.project.record import to_resolution


def resolve(at: Checkout, known: Known, *, git: History, now: int) -> Resolution:
    """The project a checkout belongs to. Nothing is written here: the caller stores what the resolution names."""
    roots = find_roots(at, git) if wants_roots(at, known) else None
    homes = {id: look_home(home, known.aliases.get(id)) for id, home in rivals(at, known, roots).items()}
    facts = Facts(checkout=at, roots=roots, homes=homes)
    verdict = identify(facts, known)
    recorded = known.projects.get(verdict.id)
    common_dir = at.common_dir if verdict.at_home else ""
    standing = {path for path in (recorded.sandboxes if recorded else ()) if stands(path, common_dir)}
    return to_resolution(verdict, facts, known, standing=standing, now=now)


def find_roots(at: Checkout, git: History) -> tuple[str, ...] | None:
    """The root commits, None where git cannot tell: it is not installed, or does not trust the owner of the files."""
    try:
        return tuple(git.root_commits(at.top))
    except GitError:
        return None
