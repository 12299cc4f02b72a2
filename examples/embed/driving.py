"""Drive a server, of weft or OpenCode, from a program that does not wait: a script, a notebook.

weft serve &
python examples/embed/driving.py http://127.0.0.1:4096 "what to do"
"""

import sys

import weft


def main(url: str, words: str) -> None:
    with weft.connect_sync(url) as api:
        for session in api.list_sessions()[:5]:
            print(session.id, session.title)
        talk = api.converse(title="From a script")
        for piece in talk.stream(words):
            print(piece, end="", flush=True)
        print(f"\n{talk.ask('Was that all?')}")


if __name__ == "__main__":
    main(*sys.argv[1:3])
