"""Every command of the bypass corpus gets its verdict, and everyday commands need no permission. No command is run."""

from pathlib import Path

import pytest

from given.bypass_page import PAGE, to_page
from given.shell import Group, ShellTree, list_groups, make_shell_tree

GROUPS = dict(list_groups())


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> ShellTree:
    return make_shell_tree(tmp_path_factory.mktemp("tree"))


def judge_group(tree: ShellTree, command: str, group: Group) -> tuple[str, bool]:
    """Return the verdict, and whether the expected permission contributed to it."""
    explanation = tree.explain(command, group.rules)
    giving = {each.part.permission for each in explanation.parts if each.action == explanation.verdict}
    return explanation.verdict, group.permission in giving


@pytest.mark.parametrize("name", GROUPS)
def test_every_attempt_has_the_expected_verdict(tree: ShellTree, name: str) -> None:
    group = GROUPS[name]
    expected = dict.fromkeys(group.commands, (group.verdict, True))
    assert {command: judge_group(tree, command, group) for command in group.commands} == expected


def test_the_corpus_has_enough_commands() -> None:
    attempts = [group.commands for group in GROUPS.values() if group.verdict != "allow"]
    harmless = [group.commands for group in GROUPS.values() if group.verdict == "allow"]
    # SECURITY.md says that there are more than 1600.
    assert sum(map(len, attempts)) > 1600
    assert sum(map(len, harmless)) > 600


def test_the_page_lists_every_attempt() -> None:
    assert PAGE.read_text() == to_page(), "write it anew: PYTHONPATH=tests python tests/given/bypass_page.py"


def test_a_rule_of_the_person_permits_exactly_what_it_names(tmp_path: Path) -> None:
    tree = make_shell_tree(tmp_path)
    assert tree.explain("echo x > .git/hooks/pre-commit").verdict == "ask"
    assert tree.explain("echo x > .git/hooks/pre-commit", "own-hooks").verdict == "allow"
    assert tree.explain("echo x > sub/.git/hooks/pre-commit", "own-hooks").verdict == "allow"
    assert tree.explain("echo x > .git/config", "own-hooks").verdict == "ask"
