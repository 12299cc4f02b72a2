"""Characters that the grammar's tables do not have: read as parts of words, and no end of the process."""

import subprocess
import sys

from weft.tool.shell.parse import parse
from weft.tool.shell.tree import text_of

FAR = """
import random
from weft.tool.shell.parse import parse
dice = random.Random(7)
for _ in range(50):
    shell, far = dice.choices('a $(){}[]<>|&;_=#"\\n', k=60), dice.choices(range(0x20000, 0x110000), k=60)
    parse("".join(dice.choice((one, chr(other))) for one, other in zip(shell, far)))
"""


def test_texts_are_as_they_were_written() -> None:
    text = 'echo "🎉 ¦ done" > 中文/Ж.txt && rm 🧶 ñ'
    root = parse(text)
    assert not isinstance(root, str)
    assert text_of(root) == text
    (both,) = root.named_children
    assert [text_of(child) for child in both.children] == ['echo "🎉 ¦ done" > 中文/Ж.txt', "&&", "rm 🧶 ñ"]
    right = both.named_children[1]
    name = right.child_by_field_name("name")
    assert name is not None
    assert name == right.named_children[0]
    assert [text_of(child) for child in right.children_by_field_name("argument")] == ["🧶", "ñ"]


def test_none_of_them_ends_the_process() -> None:
    """Where the memory of a process lies differs: about every second one would be killed."""
    running = [subprocess.Popen([sys.executable, "-c", FAR]) for _ in range(6)]
    assert [process.wait(60) for process in running] == [0] * 6
