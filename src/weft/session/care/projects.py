"""Examine projects: sessions that belong to another than they are recorded under, or to none."""

from collections import Counter

from weft.model.plural import plural
from weft.project.facts import alias_from_plain, alias_key
from weft.session.care.finding import Finding, Item
from weft.session.care.strays import Surroundings, find_strays
from weft.store.tree import Tree

AREA = "projects"


def examine_projects(tree: Tree) -> list[Finding]:
    around = look_around_tree(tree)
    strays = find_strays(around)
    found: list[Finding] = []
    if strays:
        found.append(
            Finding(
                severity="warning",
                area=AREA,
                what=f"{plural(len(strays), 'session is', 'sessions are')} recorded elsewhere than in the project of the directory",
                means="they are not in that project's list",
                repair="weft session adopt --all",
                cure="adopt",
                items=tuple(
                    Item(where=stray.session.id, reason=f"belongs to {stray.project}") for stray in strays
                ),
            )
        )
    taken = {stray.session.id for stray in strays}
    left = Counter(session.project_id for session in around.sessions if session.id not in taken)
    unexplained = [id for id in around.recordless() if left[id]]
    if unexplained:
        found.append(
            Finding(
                severity="warning",
                area=AREA,
                what=f"{plural(len(unexplained), 'project has', 'projects have')} sessions and no record",
                means="weft session list --all shows them; a run in the directory they were held in makes the record",
                repair="weft project merge ID INTO",
                items=tuple(Item(where=id, reason=plural(left[id], "session")) for id in unexplained),
            )
        )
    return found


def look_around_tree(tree: Tree) -> Surroundings:
    projects = tree.list_projects()
    kept = {project.id: alias_from_plain(tree.kept(alias_key(project.id))) for project in projects}
    return Surroundings(
        projects=projects,
        aliases={id: alias for id, alias in kept.items() if alias is not None},
        sessions=tree.list_sessions(),
    )
