"""Apply a patch to several files."""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Annotated, Any, Final, Literal

from msgspec import Meta, Struct
from msgspec.structs import replace

from weft.errors import ToolError
from weft.tool.about import about
from weft.tool.change.choice import to_patchers
from weft.tool.change.diff import diff
from weft.tool.change.edit import SHOWN_WHOLE, keeping_form, sendable
from weft.tool.change.patch_text import Add, Delete, Section, Update, parse_patch, patched
from weft.tool.change.together import Turn, change_together
from weft.tool.change.write import save_unsaved
from weft.tool.contract import Tool, ToolContext, ToolResult
from weft.tool.diagnostic import Diagnostics, to_metadata, told_of
from weft.tool.files import Text, find_stamp, find_text
from weft.tool.paths import Place, enter, lasting_edit, patterns_of, title_of

UNVERIFIED: Final = "apply_patch verification failed: "
EMPTY: Final = "patch rejected: empty patch"
MARKS: Final = {"add": "A", "delete": "D", "update": "M", "move": "M"}


class PatchInput(Struct, frozen=True, kw_only=True, rename="camel"):
    patch_text: Annotated[
        str, Meta(description="The whole patch, from `*** Begin Patch` to `*** End Patch`.")
    ]


class Change(Struct, frozen=True, kw_only=True):
    """What a section of a patch does to a file: its text before and after, and where it goes."""

    kind: Literal["add", "delete", "update", "move"]
    place: Place
    before: str = ""
    after: str = ""
    target: Place | None = None

    @property
    def stands(self) -> Place:
        return self.target or self.place


Places = Mapping[str, Place]
Texts = Mapping[str, Text | None]


async def apply_patch(wanted: PatchInput, ctx: ToolContext) -> ToolResult:
    sections = _parsed(wanted.patch_text)
    places = {path: await enter(path, ctx) for path in dict.fromkeys(_paths(sections))}
    _check_links(sections, places)
    changes = await _verified(sections, places, await _seen(places, ctx))
    await _ask(changes, ctx)
    async with AsyncExitStack() as held:
        for real in sorted({place.real for place in places.values()}):
            await held.enter_async_context(ctx.desk.guard.lock(real))
        # Asking may take an hour: what this session did meanwhile is built upon, anybody else's work is refused.
        texts = await _seen(places, ctx)
        changes = await _verified(sections, places, texts)
        for place in places.values():
            await save_unsaved(place, ctx)
        async with ctx.watch(*(place.real for place in places.values())):
            await change_together(list(_turns(changes, texts)))
            changes = [await _tidied(change, ctx) for change in changes]
    left = [change.stands.path for change in changes if change.kind != "delete"]
    found = await ctx.desk.lookout.look(*left)
    return await asyncio.to_thread(_result, changes, found, ctx)


def _parsed(text: str) -> tuple[Section, ...]:
    try:
        sections = parse_patch(text)
    except ToolError as error:
        raise ToolError(f"{UNVERIFIED}{error}") from error
    if not sections:
        raise ToolError(EMPTY)
    return sections


def _paths(sections: Sequence[Section]) -> Iterator[str]:
    for section in sections:
        yield section.path
        if isinstance(section, Update) and section.target is not None:
            yield section.target


def _check_links(sections: Sequence[Section], places: Places) -> None:
    """Taking away a link is not taking away what it leads to; a patch cannot say which is meant."""
    for section in sections:
        gone = isinstance(section, Delete) or (isinstance(section, Update) and section.target is not None)
        place = places[section.path]
        if gone and place.is_link:
            raise ToolError(f"{UNVERIFIED}{place.path} is a link. Move or remove it with a shell command.")


async def _seen(places: Places, ctx: ToolContext) -> dict[str, Text | None]:
    """The texts of all the files, if the session has seen them so."""
    texts = {}
    for place in places.values():
        texts[place.real] = found = await ctx.desk.files.find_text(place.real)
        if found is not None:
            # OpenCode lets a patch overwrite and delete files that nobody has looked at.
            ctx.desk.guard.check(place.real, found.stamp)
    return texts


async def _verified(sections: Sequence[Section], places: Places, texts: Texts) -> list[Change]:
    try:
        return await asyncio.to_thread(lambda: list(_changes(sections, places, texts)))
    except ToolError as error:
        raise ToolError(f"{UNVERIFIED}{error}") from error


def _changes(sections: Sequence[Section], places: Places, texts: Texts) -> Iterator[Change]:
    """What each section does, given what those before it did."""
    view = {real: text.content if text else None for real, text in texts.items()}
    for section in sections:
        place = places[section.path]
        before = view[place.real]
        if before is None and not isinstance(section, Add):
            raise ToolError(
                f"there is no file {place.path} to {'delete' if isinstance(section, Delete) else 'update'}"
            )
        change = _change(section, places, before or "")
        view[place.real] = None
        if change.kind != "delete":
            view[change.stands.real] = change.after
        yield change


def _change(section: Section, places: Places, before: str) -> Change:
    place = places[section.path]
    match section:
        case Add(content=content):
            return Change(kind="add", place=place, before=before, after=content)
        case Delete():
            return Change(kind="delete", place=place, before=before)
        case Update(chunks=chunks, target=target):
            after = keeping_form(before, lambda body: patched(body, chunks, place.path)) if chunks else before
            to = places[target] if target is not None else place
            moves = to.real != place.real
            return Change(
                kind="move" if moves else "update",
                place=place,
                before=before,
                after=after,
                target=to if moves else None,
            )


def _turns(changes: Sequence[Change], texts: Texts) -> Iterator[Turn]:
    """What has to be done to each file in the end. What is written comes first, what goes, last."""
    after: dict[str, str | None] = {}
    like: dict[str, str] = {}
    for change in changes:
        after[change.place.real] = None
        if change.kind != "delete":
            after[change.stands.real] = change.after
        if change.target is not None:
            like[change.target.real] = change.place.real
    for real in sorted(after, key=lambda each: after[each] is None):
        found = texts[real]
        before = found.content if found else None
        if before != after[real]:
            yield Turn(path=real, before=before, after=after[real], like=like.get(real))


async def _ask(changes: Sequence[Change], ctx: ToolContext) -> None:
    # OpenCode holds only the sources against the rules: a file may be moved to where none may be written.
    places = [place for change in changes for place in (change.place, change.stands)]
    patterns = tuple(dict.fromkeys(pattern for place in places for pattern in patterns_of(place, ctx)))
    files = await asyncio.to_thread(lambda: [_told(change, ctx) for change in changes])
    metadata = {
        "filepath": ", ".join(dict.fromkeys(title_of(change.place, ctx) for change in changes)),
        "diff": "".join(f"{file['diff']}\n" for file in files),
        "files": files,
    }
    await ctx.ask("edit", *patterns, always=lasting_edit(patterns), metadata=metadata)


async def _tidied(change: Change, ctx: ToolContext) -> Change:
    """Have a file tidied up that was written, and remember how it then stands."""
    if change.kind == "delete":
        return change
    place = change.stands
    if (stamp := await find_stamp(place.real)) is None:
        return change  # a later section took it away again
    ctx.desk.guard.saw(place.real, stamp)
    await ctx.desk.edited(place.path)
    stands = await find_text(place.real)
    if stands is None:
        return change
    ctx.desk.guard.saw(place.real, stands.stamp)
    await ctx.desk.files.show(place.real, change.before)
    return replace(change, after=stands.content)


def _result(changes: Sequence[Change], found: Diagnostics, ctx: ToolContext) -> ToolResult:
    files = [_told(change, ctx) for change in changes]
    lines = [f"{MARKS[change.kind]} {title_of(change.stands, ctx)}" for change in changes]
    summary = "\n".join(["Success. Updated the following files:", *lines])
    left = list(dict.fromkeys(change.stands for change in changes if change.kind != "delete"))
    output = summary + "".join(told_of(place.path, found, where=title_of(place, ctx)) for place in left)
    metadata = {
        "diff": "".join(f"{file['diff']}\n" for file in files),
        "files": files,
        "diagnostics": to_metadata(found, *(place.path for place in left)),
    }
    return ToolResult(title=summary, output=output, metadata=metadata)


def _told(change: Change, ctx: ToolContext) -> dict[str, Any]:
    """A change as screens show it."""
    shown = diff(change.place.path, change.before, change.after)
    whole = len(change.before) + len(change.after) <= SHOWN_WHOLE
    told = {
        "filePath": change.place.path,
        "relativePath": title_of(change.stands, ctx),
        "type": change.kind,
        "diff": sendable(shown.text),
        "before": sendable(change.before) if whole else "",
        "after": sendable(change.after) if whole else "",
        "additions": shown.additions,
        "deletions": shown.deletions,
    }
    return told | ({"movePath": change.target.path} if change.target is not None else {})


APPLY_PATCH = Tool(
    name="apply_patch",
    about=about("apply_patch"),
    takes=PatchInput,
    run=apply_patch,
    tell=to_patchers,
    announces=True,
)
