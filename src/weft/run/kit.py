"""The kit: what a run needs, in one frozen record."""

from collections.abc import Callable, Mapping

from msgspec import Struct

from weft.host.clock import Clock
from weft.journal import Journal
from weft.model.agent import Agent, ReadInstructions
from weft.model.ids import Mint, SessionID
from weft.model.project import Place
from weft.permission.gate import Gate
from weft.provider.registry import Registry
from weft.store.contract import Store
from weft.tool.contract import AnyTool
from weft.tool.desk import Desk


class Compaction(Struct, frozen=True, kw_only=True):
    """Whether to summarise what no longer fits, and to forget old tool outputs, without being asked."""

    auto: bool = True
    prune: bool = True


class Kit(Struct, frozen=True, kw_only=True):
    """Made once for a directory. `desk` gives what the tools of a session share; `owner` says who we are.

    With `plan_files` a plan is written to a file, which lies in `plans` where there is no checkout.
    """

    store: Store
    journal: Journal
    clock: Clock
    mint: Mint
    chance: Callable[[], float]
    place: Place
    owner: str
    platform: str
    models: Registry
    agents: Mapping[str, Agent]
    default_agent: str
    tools: Mapping[str, AnyTool]
    output_limit: int
    compaction: Compaction
    instructions: ReadInstructions
    plans: str
    plan_files: bool
    gate: Gate
    desk: Callable[[SessionID], Desk]
