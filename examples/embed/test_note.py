"""A test of an agent with a scripted model.

pytest examples/embed/test_note.py
"""

from pathlib import Path

import weft
from weft.testing import Script, assert_called, assert_changed, assert_cost


def test_it_takes_a_note(tmp_path: Path) -> None:
    script = Script("Remember tea.").calls("write", filePath="note.txt", content="tea").says("Noted.")
    with weft.open(tmp_path, model=script, store="memory:") as agent:
        answer = agent.ask("Remember tea.")
    assert answer.text == "Noted."
    assert_called(answer, "write", filePath="note.txt")
    assert_changed(answer, "note.txt")
    assert_cost(answer, at_most="0.01")
