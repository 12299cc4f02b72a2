"""The short way: a repository that is as we left it needs no other project, no git, and no writing."""

from weft.model.project import Place, Project
from weft.project.facts import Alias, Checkout, Resolution
from weft.project.look import stands


def find_settled(at: Checkout, project: Project | None, alias: Alias | None) -> Resolution | None:
    """The place, from the records of the one project its id file names; None if it takes a closer look."""
    if project is None or alias is None or not (at.id == project.id and _is_plain(at)):
        return None
    seen = alias.worktree == at.main and alias.common_dir == at.common_dir and alias.inode == at.inode.number
    recorded = project.worktree == at.main and project.vcs == "git"
    if not seen or not recorded or not all(stands(path, at.common_dir) for path in project.sandboxes):
        return None
    return Resolution(place=Place(project=project, directory=at.directory, worktree=at.top))


def _is_plain(at: Checkout) -> bool:
    # Deeper down there may be a project that lost its `.git`; in a linked checkout OpenCode may have gone astray.
    return at.sound and not at.git_file and at.directory == at.top == at.main
