"""Configured budgets: which source takes precedence, and what is reported."""

import json
import os
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from weft.config.load import load_config
from weft.errors import ConfigError
from weft.host.paths import paths_from
from weft.local.open import read_scope, to_budgets
from weft.model.ids import ProjectID
from weft.model.project import Place, Project, ProjectTime
from weft.model.spending import Budget, Budgets


def to_config(budget: dict[str, Any]) -> str:
    return json.dumps({"experimental": {"weft": {"budget": budget}}})


def write_user_config(budget: dict[str, Any]) -> None:
    path = Path(os.environ["XDG_CONFIG_HOME"], "opencode", "opencode.json")
    path.parent.mkdir(parents=True)
    path.write_text(to_config(budget))


def budgets(directory: Path, **env: str) -> Budgets:
    time = ProjectTime(created=1, updated=1)
    project = Project(id=ProjectID("global"), worktree=str(directory), time=time)
    place = Place(project=project, directory=str(directory), worktree=str(directory))
    known = {**os.environ, **env}
    return to_budgets(load_config(read_scope(place, paths_from(known), known), strict=True))


def test_every_limit_of_every_budget_is_read_exactly(tmp_path: Path) -> None:
    limits = {"cost": "2.50", "tokens": 2_000_000, "steps": 200, "seconds": 3600}
    write_user_config({"session": limits, "tree": {"cost": 10.1}, "day": {"steps": 1}})

    assert budgets(tmp_path) == Budgets(
        session=Budget(cost=Decimal("2.50"), tokens=2_000_000, steps=200, seconds=3600),
        tree=Budget(cost=Decimal("10.1")),
        day=Budget(steps=1),
    )


def test_there_is_no_limit_without_configuration(tmp_path: Path) -> None:
    assert budgets(tmp_path) == Budgets()


def test_a_project_may_lower_a_limit_and_raise_one_only_if_trusted(tmp_path: Path) -> None:
    write_user_config({"session": {"cost": "5", "steps": 10}})
    (tmp_path / "opencode.json").write_text(to_config({"session": {"cost": "500", "steps": 3, "tokens": 7}}))

    assert budgets(tmp_path).session == Budget(cost=Decimal(5), steps=3, tokens=7)
    assert budgets(tmp_path, WEFT_TRUST="1").session == Budget(cost=Decimal(500), steps=3, tokens=7)


@pytest.mark.parametrize(
    ("budget", "message"),
    [
        ({"session": {"cost": "lots"}}, 'session.cost: expected dollars such as "2.50"'),
        ({"session": {"cost": -1}}, "session.cost: expected dollars"),
        ({"tree": {"steps": 0}}, "tree.steps: expected a whole number above 0"),
        ({"day": {"tokens": "many"}}, "day.tokens: expected a whole number above 0, found a string"),
        ({"day": 5}, "day: expected an object"),
    ],
)
def test_an_invalid_limit_is_refused_by_name(tmp_path: Path, budget: dict[str, Any], message: str) -> None:
    write_user_config(budget)
    with pytest.raises(ConfigError) as refused:
        budgets(tmp_path)
    assert f"experimental.weft.budget.{message}" in str(refused.value)
