import weft
from weft.testing import Script

with weft.open(".", model=Script().says("It weaves."), store="memory:") as agent:
    print(agent.ask("What does this repository do?"))
