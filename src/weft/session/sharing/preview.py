"""What a share would show and what it would cover, before anything leaves (pure)."""

from collections import Counter

from weft.model.around.share import Covered, SharePreview, ShareTerms
from weft.model.parcel import Parcel
from weft.session.sharing.covering import Covering
from weft.session.sharing.shown import count_pictures, to_shown
from weft.session.transfer.redact import Finding


def to_preview(parcel: Parcel, terms: ShareTerms) -> SharePreview:
    shown = to_shown(parcel, attachments=terms.attachments)
    covering = Covering(redact=terms.redact)
    covering.cover(shown)
    covered = tuple(_to_covered(each) for each in covering.findings())
    return SharePreview(
        to=terms.to,
        messages=len(shown.messages),
        parts=_count(shown),
        pictures=count_pictures(shown),
        left_out=_count(parcel) - _count(shown),
        kinds=dict(Counter(each.kind for each in covered)),
        covered=covered,
    )


def _count(parcel: Parcel) -> int:
    return sum(len(message.parts) for message in parcel.messages)


def _to_covered(found: Finding) -> Covered:
    return Covered(
        kind=found.kind,
        where=found.where,
        placeholder=found.placeholder,
        glimpse=found.glimpse,
        times=found.times,
    )
