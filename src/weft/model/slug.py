"""Slugs: two plain words that name a session's plan file."""

from collections.abc import Callable

FIRST = (
    "amber", "brisk", "calm", "clear", "copper", "dapper", "early", "fair", "fleet", "gentle", "golden", "hardy",
    "humble", "ivory", "jolly", "keen", "light", "lunar", "mellow", "nimble", "olive", "patient", "quick", "rustic",
    "silver", "steady", "tidy", "vivid", "warm", "wry",
)  # fmt: skip
SECOND = (
    "anchor", "aspen", "badger", "beacon", "birch", "bobbin", "brook", "cedar", "comet", "curlew", "fern", "finch",
    "garnet", "harbor", "heron", "juniper", "lantern", "loom", "maple", "meadow", "otter", "pebble", "quartz", "reed",
    "shuttle", "sparrow", "thistle", "thread", "tiller", "walnut", "willow", "wren",
)  # fmt: skip


def make_slug(random: Callable[[int], bytes]) -> str:
    one, two, three, four = random(4)
    return f"{FIRST[(one << 8 | two) % len(FIRST)]}-{SECOND[(three << 8 | four) % len(SECOND)]}"
