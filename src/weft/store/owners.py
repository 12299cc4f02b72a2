"""Whose a message is: the tree files parts by message alone, so two sessions must never have one of the same name."""

import os
from collections.abc import Sequence

from weft.model.ids import MessageID, SessionID
from weft.store.tree import Tree


def list_owners(tree: Tree, messages: Sequence[MessageID]) -> dict[MessageID, SessionID]:
    """The sessions that have these messages already. Where a message has no parts nothing can be overwritten."""
    layout = tree.layout
    taken = [message for message in messages if os.path.isdir(layout.parts(message))]
    if not taken:
        return {}
    sessions = [SessionID(name) for name in tree.documents.directories(layout.shelf("message"))]
    return {
        message: session
        for session in sessions
        for message in taken
        if os.path.exists(layout.message(session, message))
    }
