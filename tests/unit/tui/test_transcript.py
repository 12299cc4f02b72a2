"""The lines of a transcript: rendered once, folded, searched, and not more of them than are needed."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from weft.model.ids import MessageID
from weft.tui.transcript import MAX_LINES, PAGE_LINES, TranscriptLines, to_copy
from weft.tui.view import CallItem, Item, NoticeItem, PromptItem, ReasoningItem


def note(text: str) -> NoticeItem:
    return NoticeItem(kind="note", text=text)


def show(lines: TranscriptLines) -> list[str]:
    return ["".join(text for _, text in lines.get_line(at)) for at in range(lines.height)]


def test_items_and_the_tail_follow_each_other() -> None:
    lines = TranscriptLines(40)
    lines.append([note("one"), note("two")])
    lines.set_tail([[("", "open")]])
    assert show(lines) == ["one", "two", "open"]
    assert [lines.find_entry(at) for at in range(4)] == [0, 1, 1, 1]
    lines.set_tail([])
    assert (lines.get_extent(1), lines.get_line(9)) == ((1, 2), [])


def test_only_the_last_lines_are_kept_and_others_are_rendered_again() -> None:
    lines = TranscriptLines(40)
    dropped = sum(lines.append([note(str(number))]) for number in range(MAX_LINES + PAGE_LINES))
    assert (dropped, lines.first, lines.height) == (PAGE_LINES, PAGE_LINES, MAX_LINES)
    assert show(lines)[0] == str(PAGE_LINES)
    assert lines.render_older() == PAGE_LINES
    assert show(lines)[0] == "0"
    assert lines.append([note("x")] * (PAGE_LINES + 1), keep=True) == 0


def test_a_new_width_renders_the_end_first_and_the_rest_on_demand() -> None:
    lines = TranscriptLines(40)
    lines.append([note("a b c " * 5) for _ in range(500)])
    lines.resize(10)
    assert 0 < lines.first < 500
    assert lines.height < 2 * PAGE_LINES
    assert lines.get_extent(0)[0] == 0
    assert lines.first == 0


def test_a_call_is_folded_to_one_line_and_opened_in_full() -> None:
    call = CallItem(tool="read", title="a.py", ms=1, output="one\ntwo\n")
    lines = TranscriptLines(40)
    lines.append([note("before"), call, note("after")])
    brief = ["before", "✓ Read    a.py", "after"]
    assert show(lines) == brief
    assert lines.fold(1)
    assert show(lines) == ["before", "✓ Read    a.py", "  one", "  two", "after"]
    assert lines.fold(1)
    assert show(lines) == ["before", "✓ Read    a.py · 2 lines", "after"]
    assert lines.fold(1)
    assert show(lines) == brief
    assert not lines.fold(0)
    assert lines.fold_all("tools") == "line"
    assert show(lines)[1] == "✓ Read    a.py · 2 lines"


def test_reasoning_is_one_line_until_it_is_expanded() -> None:
    lines = TranscriptLines(30)
    lines.append([ReasoningItem(text="first I think\nthen I act", ms=5)])
    assert len(show(lines)) == 2
    assert lines.fold_all("reasoning") == "full"
    assert show(lines)[2:] == ["first I think", "then I act"]


def test_prompts_and_text_are_searched_in_both_directions() -> None:
    items: list[Item] = [
        PromptItem(text="Spin", message=MessageID("m1")),
        note("a thread"),
        PromptItem(text="Weave", message=MessageID("m2")),
        note("THREAD again"),
    ]
    lines = TranscriptLines(40)
    lines.append(items)
    assert lines.find_prompt(0, forward=True) == 2
    assert lines.find_prompt(0, forward=False) is None
    assert lines.find_words("thread", -1, forward=True) == 1
    assert lines.find_words("thread", 1, forward=True) == 3
    assert lines.find_words("thread", 4, forward=False) == 3
    assert lines.list_turn(3) == items[2:]
    assert to_copy(items[0]) == "Spin"


@given(
    st.lists(st.text(max_size=30), max_size=40), st.integers(5, 60), st.lists(st.integers(0, 60), max_size=8)
)
def test_older_items_are_prepended_at_every_width(texts: list[str], width: int, folds: list[int]) -> None:
    items: list[Item] = [CallItem(tool="bash", title=text, ms=1, output=text) for text in texts]
    middle = len(items) // 2
    lines, whole = TranscriptLines(width), TranscriptLines(width)
    lines.append(items[middle:])
    added = lines.prepend(items[:middle])
    whole.append(items)
    assert (show(lines), added) == (
        show(whole),
        whole.get_extent(middle)[0] if middle < len(items) else added,
    )
    for entry in folds:
        if entry < len(items):
            lines.fold(entry)
    starts = [lines.get_extent(entry) for entry in range(len(items))]
    assert all(before[1] == after[0] for before, after in pairwise(starts))
