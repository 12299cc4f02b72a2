"""The bypass corpus as a readable page. Run as a script, it writes `tests/golden/bypass/attempts.md`."""

from collections.abc import Iterator
from pathlib import Path

from given.shell import Chapter, Group, read_corpus

PAGE = Path(__file__).parents[2] / "tests" / "golden" / "bypass" / "attempts.md"
RULES = {
    "default": "the usual rules",
    "no-rm": 'the usual rules, and `bash: {"rm *": "deny"}`',
    "no-push": "the usual rules, and `deny` for `git push *`, `docker push *`, `npm publish *`, `kubectl delete *`",
    "listed": "`deny` for all but `echo ls cat grep find head sort`, `git log`, `git grep`, and for all outside",
    "plan": "the plan agent",
    "explore": "the explore agent",
}
VERDICTS = {"deny": "denied", "ask": "asked", "allow": "allowed"}


def to_page() -> str:
    return "\n".join(_page(read_corpus())) + "\n"


def _page(corpus: dict[str, Chapter]) -> Iterator[str]:
    groups = [group for chapter in corpus.values() for group in chapter.group]
    tried = sum(len(group.commands) for group in groups if group.verdict != "allow")
    harmless = sum(len(group.commands) for group in groups if group.verdict == "allow")
    yield "# Attempts, and what comes of them"
    yield ""
    yield f"{tried} ways round the rules of the `bash` tool, each denied or asked about, and {harmless} harmless commands that stay"
    yield "unasked. None of them is ever run: they are judged in a project with a `.env`, links that lead out of it, hooks and"
    yield "configuration (`tests/given/shell.py`). This page is written by `tests/given/bypass_page.py` from `tests/golden/bypass/`,"
    yield "and checked by `tests/integration/test_bypass.py`. How judging works is in [shell](../../../docs/explanation/shell.md)."
    for chapter in corpus.values():
        yield ""
        yield f"## {chapter.title}"
        for group in chapter.group:
            yield from _section(group)


def _section(group: Group) -> Iterator[str]:
    yield ""
    yield f"### {group.about[:1].upper()}{group.about[1:]}"
    yield ""
    by = "" if group.verdict == "allow" else f", by `{group.permission}`"
    yield f"By {RULES[group.rules]}: **{VERDICTS[group.verdict]}**{by}."
    yield ""
    yield "| command | verdict |"
    yield "|---|---|"
    yield from (f"| {_code(command)} | {VERDICTS[group.verdict]} |" for command in group.commands)


def _code(command: str) -> str:
    """Format a command on one line, as code in a table cell."""
    text = "".join(
        {"\n": "⏎", "\t": "⇥"}.get(char, char if char.isprintable() else f"\\x{ord(char):02x}")
        for char in command
    )
    text = text.replace("|", "\\|").strip()
    fence = "``" if "`" in text else "`"
    return f"{fence} {text} {fence}" if "`" in text else f"{fence}{text}{fence}"


if __name__ == "__main__":
    PAGE.write_text(to_page())
