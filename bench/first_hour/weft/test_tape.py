import weft
from weft.testing import Tape


def test_it_answers(weft_tape: Tape) -> None:
    with weft.open(".", model="scripted/demo", store="memory:", tape=weft_tape) as agent:
        assert agent.ask("Greet me.").text
