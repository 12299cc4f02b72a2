"""A test of an agent with the recorded answers of a model.

pytest examples/embed/test_greeting.py
pytest --weft-record examples/embed/test_greeting.py      # asks the model again
"""

from pathlib import Path

import weft
from weft.testing import Tape

GREETING = 'def main():\n    print("Hello, world!")\n\n\nif __name__ == "__main__":\n    main()\n'


def test_it_greets_a_name(weft_tape: Tape, tmp_path: Path) -> None:
    (tmp_path / "greet.py").write_text(GREETING)
    with weft.open(tmp_path, model="scripted/demo", store="memory:", tape=weft_tape) as agent:
        answer = agent.ask("Let greet.py greet a name.")
    assert "Hello, weft!" in answer.text
    assert "sys.argv" in (tmp_path / "greet.py").read_text()
