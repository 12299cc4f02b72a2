"""An agent inside a program: it works in a directory, and asks the program before it runs a command.

python examples/embed/agent.py DIRECTORY "what to do"
"""

import sys
from typing import Literal

import weft


def permit(request: weft.PermissionRequest) -> Literal["once"]:
    print(f"allowed once: {request.permission} {', '.join(request.patterns)}")
    return "once"


with weft.open(sys.argv[1], permissions=permit, budget="0.50") as agent:
    answer = agent.ask(sys.argv[2])
    print(answer)
    for file in answer.files:
        print(f"changed: {file.file} +{file.additions} -{file.deletions}")
    print(f"cost: {answer.cost}, session: {answer.session}")
