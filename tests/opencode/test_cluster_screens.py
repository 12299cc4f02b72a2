"""Two versions of OpenCode's terminal UI, attached to two nodes that reach the database through pgbouncer."""

import time
from pathlib import Path

import pytest

from given.cluster import open_cluster
from given.tmux import TmuxTerminal, open_terminal
from weft.provider.scripted import Say

pytestmark = pytest.mark.opencode

SCRIPTS = {"weave it": [[Say(text="The warp is set."), Say(text=" The weft follows.")]]}


def wait_for_both(words: str, *terminals: TmuxTerminal) -> None:
    for terminal in terminals:
        terminal.wait_for(words)


def send(terminal: TmuxTerminal, words: str, answer: str) -> None:
    """Type a prompt, and press Enter until it is answered: the terminal ignores the key while it still loads."""
    terminal.type(words)
    while answer not in terminal.get_screen():
        terminal.press("Enter")
        for _ in range(50):
            time.sleep(0.1)
            if answer in terminal.get_screen():
                break


def test_two_terminals_on_two_nodes_show_the_same_session_live(
    program: Path, newer_program: Path, tmp_path: Path
) -> None:
    with open_cluster(tmp_path, SCRIPTS, pgbouncer=True, lease=10) as cluster:
        one, two = cluster.start("one"), cluster.start("two")
        session = one.make_session()
        places = [tmp_path / name for name in ("first", "second")]
        for place in places:
            place.mkdir()
        with (
            open_terminal(
                places[0], [str(program), "attach", one.url, "-s", session], size=(120, 40), cwd=cluster.project
            ) as first,
            open_terminal(
                places[1], [str(newer_program), "attach", two.url, "-s", session], size=(120, 40), cwd=cluster.project
            ) as second,
        ):  # fmt: skip
            wait_for_both("loom mill", first, second)  # it sends nothing before it knows the model
            send(first, "weave it", "The weft follows.")
            wait_for_both("The weft follows.", first, second)
            wait_for_both("▣  Build · loom ·", first, second)  # the run has ended
            # And the other way round.
            send(second, "hello there", "You said: hello there")
            wait_for_both("You said: hello there", first, second)
        assert one.read_texts(session) == two.read_texts(session)
        assert one.read_texts(session)[-1] == "You said: hello there"
