"""What a bundle is: a zip of sessions, each in a document, with their attachments beside them and a manifest on top.

    manifest.json            what follows below, with the size and SHA-256 of every file
    sessions/<id>.json       a session as it is exported, with its todos and its diff
    attachments/<sha256>     what a `data:` URL held; the session says `attachment:<sha256>` in its place

Parents come before their children. The same sessions make the same bytes. Whoever changes what a reader must
understand raises `FORMAT`; a reader refuses what is newer than itself.
"""

import re

from weft.model.ids import SessionID
from weft.model.parcel import Counts
from weft.model.wire import Wire, always

KIND = "weft-bundle"
FORMAT = 1
MANIFEST = "manifest.json"
ATTACHMENT = "attachment:"

MANIFEST_LIMIT = 64 << 20
FILE_LIMIT = 512 << 20
TOTAL_LIMIT = 8 << 30
FILES_LIMIT = 200_000
# No honest text packs this well as a whole; what does was made to fill a disk or a memory.
RATIO_LIMIT = 250
RATIO_FROM = 64 << 20

SESSION_NAME = re.compile(r"sessions/ses_[0-9A-Za-z]{20,40}\.json")
ATTACHMENT_NAME = re.compile(r"attachments/[0-9a-f]{64}")


class BundledFile(Wire, frozen=True, kw_only=True):
    name: str
    size: int
    sha256: str


class BundledSession(Wire, frozen=True, kw_only=True):
    id: SessionID
    title: str = always("")
    file: BundledFile
    counts: Counts


class Manifest(Wire, frozen=True, kw_only=True):
    kind: str
    format: int
    version: str
    redacted: bool = False
    sessions: tuple[BundledSession, ...]
    attachments: tuple[BundledFile, ...] = ()
