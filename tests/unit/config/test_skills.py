"""Skills: where they are found, which one takes precedence, and which are left out."""

import os
from pathlib import Path

import pytest

from weft.config.skills import SkillFinder, find_skills, read_skill
from weft.config.sources import ConfigScope
from weft.errors import ConfigError
from weft.host.paths import paths_from
from weft.model.agent import Skill


class SkillTree:
    """A home, and a project in it with a subdirectory."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.home = root / "home"
        self.project = root / "project"
        self.deep = self.project / "deep"
        for directory in (self.home, self.deep):
            directory.mkdir(parents=True)

    def put(
        self, path: str, name: str = "", description: str = "What it is for.", body: str = "Do it."
    ) -> Path:
        file = self.root / path / "SKILL.md"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"---\nname: {name or file.parent.name}\ndescription: {description}\n---\n{body}\n")
        return file

    def scope(self, *, trusted: bool = False, **env: str) -> ConfigScope:
        given = {"HOME": str(self.home), "XDG_CONFIG_HOME": str(self.home / ".config"), **env}
        return ConfigScope(
            directory=str(self.deep),
            worktree=str(self.project),
            paths=paths_from(given),
            env=given,
            trusted=trusted,
        )

    def find(self, *, trusted: bool = False, **env: str) -> dict[str, str]:
        skills = find_skills(self.scope(trusted=trusted, **env)).skills
        return {skill.name: os.path.relpath(skill.location, self.root) for skill in skills}


@pytest.fixture
def tree(tmp_path: Path) -> SkillTree:
    return SkillTree(tmp_path)


def test_skills_are_found_in_every_place(tree: SkillTree) -> None:
    places = {
        "a": "project/.claude/skills/a",
        "b": "project/deep/.claude/skills/sub/b",
        "c": "project/.opencode/skill/c",
        "d": "project/deep/.opencode/skills/d",
        "e": "home/.claude/skills/e",
        "f": "home/.config/opencode/skills/f",
        "g": "home/.opencode/skill/g",
        "h": "custom/skills/h",
    }
    for path in places.values():
        tree.put(path)
    assert tree.find(OPENCODE_CONFIG_DIR=str(tree.root / "custom")) == {
        name: f"{path}/SKILL.md" for name, path in places.items()
    }


def test_a_skill_is_described_by_its_front_matter(tree: SkillTree) -> None:
    file = tree.put("project/.claude/skills/x")
    file.write_text(
        "---\nname: weaving\ndescription: Use when: you   weave\n---\n\n# Weave\n\nOver, under.\n"
    )
    found = find_skills(tree.scope())
    skill = Skill(name="weaving", description="Use when: you weave", location=str(file))
    assert (found.skills, found.problems) == ((skill,), ())
    assert read_skill(skill) == "# Weave\n\nOver, under."


@pytest.mark.parametrize(
    "text",
    ["no front matter", "---\nname: x\n---\n", "---\ndescription: x\n---\n", "---\nname: [\n---\n", "\xff"],
)
def test_an_invalid_skill_is_skipped_and_named(tree: SkillTree, text: str) -> None:
    file = tree.put("project/.claude/skills/x")
    file.write_bytes(text.encode("latin-1"))
    tree.put("project/.claude/skills/y")
    found = find_skills(tree.scope())
    assert [skill.name for skill in found.skills] == ["y"]
    assert [problem.path for problem in found.problems] == [str(file)]


@pytest.mark.parametrize(
    ("trusted", "counts"), [(False, "home/.claude/skills/x"), (True, "project/deep/.claude/skills/x")]
)
def test_skills_of_the_person_win_over_those_of_a_project_and_otherwise_the_nearest_wins(
    tree: SkillTree, trusted: bool, counts: str
) -> None:
    for path in ("project/.claude/skills/x", "project/deep/.claude/skills/x", "home/.claude/skills/x"):
        tree.put(path)
    assert tree.find(trusted=trusted) == {"x": f"{counts}/SKILL.md"}
    assert len(find_skills(tree.scope(trusted=trusted)).problems) == 2


def test_a_link_out_of_a_project_is_followed_only_if_it_is_trusted(tree: SkillTree) -> None:
    tree.put("elsewhere/x")
    (tree.project / ".claude").mkdir()
    (tree.project / ".claude/skills").symlink_to(tree.root / "elsewhere")
    assert tree.find() == {}
    assert tree.find(trusted=True) == {"x": "project/.claude/skills/x/SKILL.md"}


def test_links_in_own_directories_are_followed_and_cycles_end(tree: SkillTree) -> None:
    tree.put("elsewhere/x")
    skills = tree.home / ".claude/skills"
    skills.mkdir(parents=True)
    (skills / "linked").symlink_to(tree.root / "elsewhere")
    (tree.root / "elsewhere/round").symlink_to(skills)
    assert tree.find() == {"x": "home/.claude/skills/linked/x/SKILL.md"}


def test_flags_exclude_the_skills_of_claude_code_or_of_the_project(tree: SkillTree) -> None:
    tree.put("project/.claude/skills/a")
    tree.put("home/.claude/skills/b")
    tree.put("project/.opencode/skills/c")
    tree.put("home/.config/opencode/skills/d")
    assert set(tree.find(OPENCODE_DISABLE_CLAUDE_CODE_SKILLS="1")) == {"c", "d"}
    assert set(tree.find(OPENCODE_DISABLE_CLAUDE_CODE="1")) == {"c", "d"}
    assert set(tree.find(OPENCODE_DISABLE_PROJECT_CONFIG="1")) == {"b", "d"}


def test_a_description_is_short_and_one_line(tree: SkillTree) -> None:
    tree.put("home/.claude/skills/x", description="word " * 1000)
    [skill] = find_skills(tree.scope()).skills
    assert len(skill.description) == 1024


def test_a_missing_or_broken_skill_raises_an_error(tree: SkillTree) -> None:
    file = tree.put("home/.claude/skills/x")
    [skill] = find_skills(tree.scope()).skills
    file.write_text("---\nname: [\n---\n")
    with pytest.raises(ConfigError, match="front matter"):
        read_skill(skill)
    file.unlink()
    with pytest.raises(ConfigError, match="no longer exists"):
        read_skill(skill)


def test_a_skill_file_is_read_again_only_if_it_changed(tree: SkillTree) -> None:
    kept, changed = (tree.put(f"home/.claude/skills/{name}") for name in ("kept", "changed"))
    finder = SkillFinder(tree.scope())
    first = {skill.name: skill for skill in finder.find().skills}
    tree.put("home/.claude/skills/changed", description="Another purpose.")
    tree.put("home/.claude/skills/new")
    second = {skill.name: skill for skill in finder.find().skills}
    assert {name: skill.description for name, skill in second.items()} == {
        "kept": "What it is for.",
        "changed": "Another purpose.",
        "new": "What it is for.",
    }
    assert second["kept"] is first["kept"]
    kept.unlink()
    changed.write_text("nothing\n")
    third = finder.find()
    assert [skill.name for skill in third.skills] == ["new"]
    assert [problem.path for problem in third.problems] == [str(changed)]
