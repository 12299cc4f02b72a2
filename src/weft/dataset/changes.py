"""Look up which calls changed a file, and the steps that made them, in the dataset."""

from typing import Final, NamedTuple

from weft.dataset.database import Dataset
from weft.dataset.tables import clean
from weft.model.diff import Tree
from weft.model.ids import MessageID, ProjectID, SessionID

_CHANGES_SQL: Final = """
SELECT f.session_id, f.step_id, f.call_id, f.part_id, f.number, f.time, f.path, f.root, f.recorded, f.before_tree,
  f.after_tree, f.copied, f.undone, coalesce((SELECT c.tool FROM stored_calls c
    WHERE c.session_id = f.session_id AND c.step_id = f.step_id AND c.id = f.call_id), '')
FROM stored_files f JOIN stored_sessions s ON s.id = f.session_id
WHERE f.path = ? AND s.project_id = ? ORDER BY f.time, s.created, f.number"""
_STEP_SQL: Final = """
SELECT s.title, t.number, t.prompt_id, coalesce(p.text, ''), t.agent, t.provider_id, t.model_id, t.cost, t.priced
FROM stored_steps t JOIN stored_sessions s ON s.id = t.session_id
LEFT JOIN stored_prompts p ON p.id = t.prompt_id AND p.session_id = t.session_id
WHERE t.id = ? AND t.session_id = ?"""
_TOGETHER_SQL: Final = (
    "SELECT path FROM stored_files WHERE part_id = ? AND session_id = ? AND path != ? AND recorded"
)
_PATHS_SQL: Final = """
SELECT f.path FROM stored_files f JOIN stored_sessions s ON s.id = f.session_id
WHERE s.project_id = ? AND f.recorded GROUP BY f.path ORDER BY max(f.time) DESC"""


class CallChange(NamedTuple):
    """A change of a file by a call: a row of the table `files`, with the tool. Only a `recorded` change has trees."""

    session_id: SessionID
    step_id: MessageID
    call_id: str
    part_id: str
    number: int
    time: int
    path: str
    root: str
    recorded: int
    before: Tree
    after: Tree
    copied: int
    undone: int
    tool: str


class StepFacts(NamedTuple):
    """What is known of the step that made a change. `cost` is an exact number as text."""

    title: str = ""
    number: int = 0
    prompt_id: MessageID | None = None
    prompt: str = ""
    agent: str = ""
    provider_id: str = ""
    model_id: str = ""
    cost: str = "0"
    priced: int = 1


def list_changes(dataset: Dataset, project: ProjectID, path: str) -> list[CallChange]:
    """Return the changes of a path, oldest first. A copy of a change is left out if the change itself is there."""
    with dataset.use() as connection:
        rows = connection.execute(_CHANGES_SQL, (clean(path), project)).fetchall()
    changes = [CallChange(*row) for row in rows]
    known = {(each.before, each.after) for each in changes if each.recorded and not each.copied}
    kept: list[CallChange] = []
    for change in changes:
        if change.copied and change.recorded:
            if (change.before, change.after) in known:
                continue
            known.add((change.before, change.after))
        kept.append(change)
    return kept


def get_step_facts(dataset: Dataset, change: CallChange) -> StepFacts:
    """Return what is known of the step that made a change."""
    with dataset.use() as connection:
        row = connection.execute(_STEP_SQL, (change.step_id, change.session_id)).fetchone()
    return StepFacts() if row is None else StepFacts(*row)


def list_changed_together(dataset: Dataset, change: CallChange) -> list[str]:
    """Return the other files that were changed at the same time by the same call."""
    with dataset.use() as connection:
        rows = connection.execute(_TOGETHER_SQL, (change.part_id, change.session_id, change.path))
        return [path for (path,) in rows]


def list_changed_paths(dataset: Dataset, project: ProjectID) -> list[str]:
    """Return the files that sessions of a project changed, those that changed last first."""
    with dataset.use() as connection:
        return [path for (path,) in connection.execute(_PATHS_SQL, (project,))]
