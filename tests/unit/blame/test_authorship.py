"""Who wrote each line: compared with the known authors, over random edits by several writers."""

from collections.abc import Sequence
from hashlib import sha1
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from weft.blame.authorship import PERSON, UNKNOWN, Authorship, Content, FileEdit, LineAuthor, order_edits
from weft.blame.lines import Version, follow_lines, is_binary, match_lines, split_lines

# A line, and who really wrote it.
Truth = list[tuple[bytes, LineAuthor]]
HERE = "/checkout"


class Writer:
    """Feeds changes to an `Authorship`, and knows the truth."""

    def __init__(self) -> None:
        self.contents: dict[str, Sequence[bytes]] = {}
        self.authorship = Authorship(lambda oid: self.contents[oid])
        self.edits: list[FileEdit] = []

    def make(self, truth: Truth | None) -> Content | None:
        if truth is None:
            return None
        lines = [line for line, _ in truth]
        oid = sha1(b"".join(line + b"\n" for line in lines), usedforsecurity=False).hexdigest()
        self.contents[oid] = lines
        return Content(oid, lines)

    def edit(
        self, before: Truth | None, after: Truth | None, *, checkout: str = HERE, shell: bool = False, undone: bool = False
    ) -> int:  # fmt: skip
        number = len(self.edits)
        edit = FileEdit(
            number, checkout, self.make(before), self.make(after), may_restore=shell, undone=undone
        )
        self.edits.append(edit)
        self.authorship.feed(edit)
        return number

    def find(self, truth: Truth, checkout: str = HERE) -> list[tuple[bytes, LineAuthor]]:
        content = self.make(truth)
        assert content is not None
        found = self.authorship.attribute(checkout, content)
        return list(zip(found.lines, found.authors, strict=True))


def change(truth: Truth, author: LineAuthor, random: Random, number: int, *, blanks: bool) -> Truth:
    """Return the file after one to three changes: lines are added, replaced, removed or moved."""
    lines = list(truth)
    for part in range(random.randint(1, 3)):
        at, end = sorted((random.randint(0, len(lines)), random.randint(0, len(lines))))
        end = min(end, at + 5)
        fresh: Truth = [
            (b"value_%d_%d_%d = compute_something(%d)" % (number, part, index, number), author)
            for index in range(random.randint(1, 4))
        ]
        if blanks:
            fresh.insert(random.randint(0, len(fresh)), (b"", author))
        match random.choice(("add", "replace", "remove", "move")):
            case "add":
                lines[at:at] = fresh
            case "replace":
                lines[at:end] = fresh
            case "remove":
                del lines[at:end]
            case _:
                block = lines[at:end]
                del lines[at:end]
                place = random.randint(0, len(lines))
                lines[place:place] = block
    return lines


def play(seed: int, *, blanks: bool) -> tuple[Truth, list[tuple[bytes, LineAuthor]]]:
    """Let sessions and a person change a file in turns. Return the truth and the answer."""
    random, writer = Random(seed), Writer()
    truth: Truth = [(b"the first version had line number %d" % index, UNKNOWN) for index in range(8)]
    states = [truth]
    for number in range(random.randint(3, 25)):
        if (
            writer.edits and random.random() < 0.4
        ):  # a person changes the file between two steps, or goes back to an older version
            truth = (
                random.choice(states)
                if random.random() < 0.3
                else change(truth, PERSON, random, 1000 + number, blanks=blanks)
            )
        after = change(truth, len(writer.edits), random, number, blanks=blanks)
        writer.edit(truth, after, shell=random.random() < 0.5)
        states += [truth, after]
        truth = after
    if random.random() < 0.5:
        truth = change(truth, PERSON, random, 5000, blanks=blanks)
    return truth, writer.find(truth)


@given(st.integers(0, 2**32))
def test_each_line_has_the_author_that_wrote_it(seed: int) -> None:
    truth, found = play(seed, blanks=False)
    assert found == truth


@given(st.integers(0, 2**32))
def test_blank_lines_do_not_disturb_the_authors_of_others(seed: int) -> None:
    truth, found = play(seed, blanks=True)
    assert [pair for pair in found if pair[0]] == [pair for pair in truth if pair[0]]
    assert len(found) == len(truth)


@given(
    st.lists(st.sampled_from([b"", b"}", b"a", b"b", b"c"])),
    st.lists(st.sampled_from([b"", b"}", b"a", b"b"])),
)
def test_matches_are_equal_blocks_in_order(old: list[bytes], new: list[bytes]) -> None:
    ends = (0, 0)
    for match in match_lines(old, new):
        assert old[match.old : match.old + match.size] == new[match.new : match.new + match.size]
        assert match.old >= ends[0]
        assert match.new >= ends[1]
        ends = match.old + match.size, match.new + match.size


def lines(*texts: str, by: LineAuthor) -> Truth:
    return [(text.encode(), by) for text in texts]


OLD = lines("import os", "", "def main():", "    return os.getcwd()", by=UNKNOWN)


def test_a_new_file_belongs_to_the_step_that_created_it() -> None:
    writer = Writer()
    step = writer.edit(None, OLD)
    assert writer.find(OLD) == [(line, step) for line, _ in OLD]


def test_lines_by_two_sessions_and_a_person_are_told_apart() -> None:
    writer = Writer()
    first = writer.edit(OLD, one := OLD + lines("first = 1", by=0))
    second = writer.edit(one, two := lines("second = 2", by=1) + one)
    by_hand = two + lines("by hand", by=PERSON)
    assert (first, second) == (0, 1)
    assert writer.find(by_hand) == by_hand


def test_lines_undone_and_retyped_by_hand_belong_to_the_person() -> None:
    writer = Writer()
    writer.edit(OLD, OLD + lines("answer = compute_the_answer_to_everything()", by=0), undone=True)
    assert writer.find(OLD) == OLD
    again = OLD + lines("answer = compute_the_answer_to_everything()", "# again", by=PERSON)
    assert writer.find(again) == again


def test_a_file_left_alone_by_undo_keeps_its_author() -> None:
    writer = Writer()
    after = OLD + lines("kept = True", by=0)
    writer.edit(OLD, after, undone=True)
    assert writer.find(after) == after
    more = after + lines("more = 1", by=PERSON)
    assert writer.find(more) == more


def test_a_merge_from_another_checkout_brings_its_authors() -> None:
    writer = Writer()
    there = OLD + lines("from_the_worktree = compute_this_elsewhere()", by=0)
    writer.edit(OLD, there, checkout="/worktree")
    here = lines("from_the_main_checkout = compute_this_here()", by=1) + OLD
    writer.edit(OLD, here)
    merged = lines("from_the_main_checkout = compute_this_here()", by=1) + there
    assert writer.find(merged) == merged


def test_a_squash_or_rebase_with_equal_content_keeps_the_authors() -> None:
    writer = Writer()
    truth = OLD
    for number in range(4):
        after = truth + lines(f"step_{number} = compute_the_step({number})", by=number)
        writer.edit(truth, after)
        truth = after
    # Git shows the content before and after it, as a rebase does.
    assert writer.find(OLD) == OLD
    assert writer.find(truth) == truth


def test_changed_line_endings_do_not_change_the_author() -> None:
    unix, dos = b"one\ntwo\nthree\n", b"one\r\ntwo\r\nthree"
    assert split_lines(unix) == split_lines(dos) == [b"one", b"two", b"three"]
    assert split_lines(b"") == []


def test_a_binary_file_is_recognised() -> None:
    assert is_binary(b"\x89PNG\0\0")
    assert not is_binary("größer\n".encode())


def test_a_change_without_a_snapshot_makes_the_next_lines_unknown() -> None:
    writer = Writer()
    writer.edit(OLD, one := OLD + lines("known = 1", by=0))
    writer.authorship.doubt(HERE)
    assert writer.find(one + lines("whose = 1", by=UNKNOWN)) == one + lines("whose = 1", by=UNKNOWN)


def test_changes_stored_out_of_order_are_sorted() -> None:
    writer = Writer()
    one, two = OLD + lines("one", by=0), OLD + lines("one", "two", by=0)
    early = FileEdit(0, HERE, writer.make(OLD), writer.make(one))
    late = FileEdit(1, HERE, writer.make(one), writer.make(two))
    back = FileEdit(2, HERE, writer.make(two), writer.make(OLD))
    assert order_edits([late, early]) == [early, late]
    assert order_edits([early, late, back]) == [early, late, back]


def test_a_block_that_moved_to_another_file_keeps_its_author() -> None:
    removed = Version([b"def compute_the_whole_answer():", b"    return everything(42)"], [7, 7])
    new = [b"import os", b"def compute_the_whole_answer():", b"    return everything(42)"]
    assert follow_lines(Version([b"import os"], [1]), new, removed_elsewhere=[removed]) == [1, 7, 7]
