"""Work on a server of weft or OpenCode, from a script or a notebook.

weft serve &
python examples/embed/server.py http://127.0.0.1:4096 "what to do"
"""

import sys

import weft

with weft.connect(sys.argv[1]) as agent:
    for session in agent.wait(agent.api.list_sessions())[:5]:
        print(session.id, session.title)
    talk = agent.converse(title="From a script")
    for event in talk.stream(sys.argv[2]):
        print(event.text, end="", flush=True)
    print(f"\n{talk.ask('Was that all?')}")
