"""Test agents without a key and without a network: scripted models, recordings, assertions, and contract suites."""

from weft.provider.tape import Tape
from weft.testing.assertions import (
    assert_called,
    assert_changed,
    assert_cost,
    assert_not_called,
    assert_unchanged,
)
from weft.testing.replay import recording, replaying
from weft.testing.script import FunctionModel, ModelConversation, Reply, Script, call, say, think

__all__ = [
    "FunctionModel",
    "ModelConversation",
    "Reply",
    "Script",
    "Tape",
    "assert_called",
    "assert_changed",
    "assert_cost",
    "assert_not_called",
    "assert_unchanged",
    "call",
    "recording",
    "replaying",
    "say",
    "think",
]
