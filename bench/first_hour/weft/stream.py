import weft
from weft.testing import Script

with weft.open(".", model=Script().says("It weaves all day."), store="memory:") as agent:
    for event in agent.stream("What does this repository do?"):
        print(event.text, end="", flush=True)
