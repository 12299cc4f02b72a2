"""Agents, commands and modes defined in Markdown."""

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from given.damage import IN_ONE_DIRECTORY, allow_refusal, damaged_bytes
from weft.config.front_matter import Markdown
from weft.config.schema import AgentConfig, CommandConfig
from weft.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "front", "body"),
    [
        ("just words", {}, "just words"),
        ("---\na: 1\n---\n\nwords\n", {"a": 1}, "words"),
        ("---\r\na: 1\r\n---\r\nwords\r\n", {"a": 1}, "words"),
        ("---\n---\nwords", {}, "words"),
        ("---\na: 1\n---", {"a": 1}, ""),
        ("---\nnever closed", {}, "---\nnever closed"),
        ("words\n---\na: 1\n---\n", {}, "words\n---\na: 1\n---"),
        ("---\na: 1\n---\nx\n---\ny", {"a": 1}, "x\n---\ny"),
    ],
)
def test_front_matter_is_between_two_fences_at_the_top(text: str, front: dict[str, Any], body: str) -> None:
    document = Markdown("f", text)
    assert (document.front, document.body) == (front, body)


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("description: Use when: asked", "Use when: asked"),
        ("model: anthropic/claude:thinking", "anthropic/claude:thinking"),
        ("url: https://x.example/a", "https://x.example/a"),
        ("time: 12:30", "12:30"),
        ('quoted: "a: b"', "a: b"),
        ("quoted: 'a: b'", "a: b"),
        ("flow: { write: false, bash: true }", {"write": False, "bash": True}),
        ("list: [a, b]", ["a", "b"]),
        ("word: yes", "yes"),
        ("word: on", "on"),
        ("word: no", "no"),
        ("date: 2026-01-01", "2026-01-01"),
        ("number: 0.25", 0.25),
        ("number: 1e3", 1000.0),
        ("number: 12", 12),
        ("truth: true", True),
        ("nothing:", None),
        ("text: >\n  a\n  b", "a b\n"),
        ("text: |\n  a: b\n  c", "a: b\nc\n"),
        ("# comment: with colon: here\na: b", "b"),
        ("nested:\n  bash: deny", {"bash": "deny"}),
    ],
)
def test_front_matter_values_are_parsed_leniently(line: str, value: object) -> None:
    (found,) = Markdown("f", f"---\n{line}\n---\n").front.values()
    assert found == value


def test_keys_have_line_numbers() -> None:
    document = Markdown("f", '---\na: x: y\npermission:\n  bash:\n    "*": ask\nb: 1\n---\n')
    paths = (("a",), ("permission", "bash", "*"), ("b",))
    assert [document.locate(path) for path in paths] == [(2, 1), (5, 5), (6, 1)]


def test_invalid_yaml_is_reported_with_its_line() -> None:
    with pytest.raises(ConfigError) as caught:
        Markdown("f", "---\na: b: c\nd: [1, 2\ne: 1\n---\n")
    assert (caught.value.line, caught.value.reason) == (4, "the front matter is not YAML")


def test_exploding_yaml_aliases_are_refused() -> None:
    levels = [f"a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * 10)}]" for level in range(1, 9)]
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]", *levels]
    with pytest.raises(ConfigError, match="too large"):
        Markdown("f", "---\n" + "\n".join(lines) + "\n---\n")


def test_exploding_yaml_merges_are_refused() -> None:
    levels = [f"a{level}: &a{level} {{<<: [{', '.join([f'*a{level - 1}'] * 10)}]}}" for level in range(1, 12)]
    with pytest.raises(ConfigError, match="too large"):
        Markdown("f", "---\n" + "\n".join(["a0: &a0 {x: 1}", *levels]) + "\n---\n")


@pytest.mark.parametrize(
    "text",
    ["a: &a [*a]", "&a\na: *a", "a: " + "[" * 200_000, "a: " + "{b: " * 5000, "a: " + "[" * 300 + "]" * 300],
)
def test_front_matter_that_is_nested_too_deeply_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="too large"):
        Markdown("f", f"---\n{text}\n---\n")


def test_a_long_line_of_front_matter_is_read_in_linear_time() -> None:
    assert Markdown("f", f"---\na: x{' ' * 200_000}y\n---\n").front["a"][-1] == "y"


AGENT = b"""---
description: "Reviews: everything"
mode: subagent
steps: &steps 12
temperature: 0.5
permission: &rules {bash: {"git *": allow, "*": ask}}
options:
  <<: *rules
  list: [a, 0x10, ~, !!str 1, *steps]
  text: |
    a: b
---

Go.
"""
YAML = [
    b"&a ", b"*a", b"*steps", b"<<: ", b"? ", b"- ", b"---\n", b"...\n", b"%YAML 1.1\n", b"!!int ", b"!!float ", b"!!bool ",
    b"!!null ", b"!!binary ", b"!!timestamp ", b"!!set ", b"!!omap ", b"!!pairs ", b"!x ", b".nan", b"0x", b"9" * 5000,
    b"f" * 5000, b"[" * 2000, b"\t", b"\r", b"\xe2\x80\xa8",
]  # fmt: skip


def make_front_matter(line: str) -> bytes:
    return f"---\n{line}\n---\n".encode()


@given(damaged_bytes(AGENT, YAML) | st.binary(max_size=60).map(lambda raw: b"---\n" + raw + b"\n---\n"))
@example(make_front_matter("a: !!timestamp x"))
@example(make_front_matter("a: !!timestamp 2001-01-01"))
@example(make_front_matter("a: !!binary aGk="))
@example(make_front_matter("a: !!bool x"))
@example(make_front_matter('a: !!int ""'))
@example(make_front_matter("a: !!float .nan"))
@example(make_front_matter("a: 0x" + "f" * 5000))
@example(make_front_matter("0x" + "f" * 5000 + ": 1"))
def test_whatever_front_matter_contains_is_json_or_refused(raw: bytes) -> None:
    with allow_refusal(ConfigError, naming="front matter"):
        document = Markdown("f", raw.decode(errors="replace"))
        assert json.loads(json.dumps(document.front, allow_nan=False)) == document.front
        for key in document.front:
            document.locate((key, key))


@given(raw=damaged_bytes(AGENT, YAML))
@IN_ONE_DIRECTORY
def test_a_damaged_definition_does_not_keep_others_from_loading(home: Any, raw: bytes) -> None:
    for place in ("agent/bad.md", "command/bad.md", "mode/bad.md"):
        home.write(home.project / ".opencode" / place, raw)
    home.write(home.project / ".opencode" / "agent" / "good.md", "Good.")
    agents = home.load().config.agent
    assert agents is not None
    assert agents["good"] == AgentConfig(prompt="Good.")


def test_definitions_become_agents_commands_and_modes(home: Any) -> None:
    directory = home.project / ".opencode"
    home.write(
        directory / "agent" / "review.md",
        "---\ndescription: Looks: closely\ntools:\n  write: false\n---\nLook.\n",
    )
    home.write(directory / "agents" / "deep" / "er.md", "Dig.")
    home.write(directory / "agents" / "renamed.md", "---\nname: other\n---\nOther.")
    home.write(directory / "mode" / "calm.md", "---\nmode: subagent\n---\nCalm.")
    home.write(directory / "modes" / "deep" / "ignored.md", "Too deep.")
    home.write(
        directory / "command" / "git" / "push.md", "---\nagent: build\nsubtask: true\n---\nPush $ARGUMENTS\n"
    )
    home.write(directory / "commands" / "plain.md", "Plain.")
    home.write(directory / "agent" / "notes.txt", "not a definition")
    loaded = home.load()
    assert loaded.problems == ()
    assert loaded.config.agent == {
        "review": AgentConfig(
            description="Looks: closely", tools={"write": False}, permission={"edit": "deny"}, prompt="Look."
        ),
        "deep/er": AgentConfig(prompt="Dig."),
        "other": AgentConfig(name="other", prompt="Other."),
        "calm": AgentConfig(prompt="Calm.", mode="primary"),
    }
    assert loaded.config.command == {
        "git/push": CommandConfig(agent="build", subtask=True, template="Push $ARGUMENTS"),
        "plain": CommandConfig(template="Plain."),
    }


def test_the_nearest_definition_wins_key_by_key(home: Any) -> None:
    near = home.project / "sub"
    home.write(home.config / "agent" / "a.md", "---\ndescription: mine\ntemperature: 0.1\n---\nmine")
    home.write(home.project / ".opencode" / "agent" / "a.md", "---\ndescription: top\n---\ntop")
    home.write(near / ".opencode" / "agent" / "a.md", "near")
    loaded = home.load(near)
    assert loaded.config.agent == {"a": AgentConfig(description="top", temperature=0.1, prompt="near")}
    assert loaded.origins[("agent", "a", "prompt")].path == str(near / ".opencode" / "agent" / "a.md")


def test_a_broken_definition_is_dropped_alone(home: Any) -> None:
    directory = home.project / ".opencode" / "agent"
    bad = home.write(directory / "bad.md", "---\na: [\n---\n")
    wrong = home.write(directory / "wrong.md", "---\ndescription: d\nsteps: many\n---\nGo.")
    home.write(directory / "good.md", "Good.")
    loaded = home.load()
    assert loaded.config.agent == {
        "good": AgentConfig(prompt="Good."),
        "wrong": AgentConfig(description="d", prompt="Go."),
    }
    assert [(error.path, error.line, error.key) for error in loaded.problems] == [
        (str(bad), 3, ""),
        (str(wrong), 3, "agent.wrong.steps"),
    ]


def test_links_are_followed_and_circles_end(home: Any) -> None:
    directory = home.project / ".opencode" / "agent"
    home.write(directory / "a.md", "A.")
    (directory / "again").symlink_to(directory)
    elsewhere = home.write(home.root / "shared" / "b.md", "B.")
    (directory / "linked.md").symlink_to(elsewhere)
    assert home.load().config.agent == {"a": AgentConfig(prompt="A."), "linked": AgentConfig(prompt="B.")}
