"""Searching the history that a compaction cut off."""

from msgspec.structs import replace

from given.conversation import assistant_message, ids, text, tool_part, user_message
from given.models import CLAUDE as MODEL
from weft.context.compaction import list_cut_off, recall
from weft.context.history import since_compaction, to_model_messages
from weft.model.ids import MessageID
from weft.model.message import MessageWithParts
from weft.model.part import CompactionPart
from weft.model.search import RecallMatch

BEFORE = [
    user_message("U1", 1, text("U1", "the warp is blue")),
    assistant_message("A1", 2, "U1", tool_part("A1"), text("A1", "Blue, then.", 2)),
]
AFTER = [user_message("U3", 5, text("U3", "blue again"))]


def mark(*, undone: bool = False) -> MessageWithParts:
    return user_message("U2", 3, CompactionPart(**ids("U2", 1), auto=False, undone=undone))


def compacted_history(*, undone: bool = False) -> list[MessageWithParts]:
    summary = assistant_message("A2", 4, "U2", text("A2", "Colours were chosen."), summary=True)
    return [*BEFORE, mark(undone=undone), summary, *AFTER]


def test_only_the_cut_off_history_is_searched() -> None:
    assert list_cut_off(BEFORE) == []
    assert list(list_cut_off(compacted_history())) == BEFORE
    assert recall(BEFORE, "blue", limit=5) == []


def test_every_word_must_match_and_the_newest_match_comes_first() -> None:
    found = recall(compacted_history(), "BLUE", limit=5)
    assert found == [
        RecallMatch(message_id=MessageID("A1"), by="assistant", excerpt="Blue, then."),
        RecallMatch(message_id=MessageID("U1"), by="user", excerpt="the warp is blue"),
    ]
    assert recall(compacted_history(), "blue warp", limit=5) == found[1:]
    assert recall(compacted_history(), "blue", limit=1) == found[:1]
    assert recall(compacted_history(), "red", limit=5) == []
    assert [each.by for each in recall(compacted_history(), "out", limit=5)] == ["read"]


def test_a_long_text_is_shown_around_the_match() -> None:
    long = replace(BEFORE[0], parts=(text("U1", "a " * 1_000 + "needle" + " b" * 1_000),))
    (found,) = recall([long, *compacted_history()[1:]], "needle", limit=5)
    assert "needle" in found.excerpt
    assert (found.excerpt[0], found.excerpt[-1], len(found.excerpt) < 620) == ("…", "…", True)


def test_an_undone_compaction_shows_the_whole_history_without_mark_and_summary() -> None:
    whole = to_model_messages([*BEFORE, *AFTER], MODEL)
    assert list(since_compaction(compacted_history(undone=True))) == compacted_history(undone=True)
    assert to_model_messages(since_compaction(compacted_history(undone=True)), MODEL) == whole
