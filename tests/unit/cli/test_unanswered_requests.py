"""What `weft run` says about requests that nobody answered."""

import io

from unit.cli.test_questions import REQUEST
from weft.cli.follow import UnansweredRequests
from weft.cli.output import Paint
from weft.model.event import PermissionAsked


def test_an_unanswered_request_is_reported_with_its_reasons_and_how_to_allow_it() -> None:
    unanswered = UnansweredRequests()
    unanswered.feed(PermissionAsked(request=REQUEST))
    assert list(unanswered.to_lines(Paint(io.StringIO()))) == [
        "refused: nobody was there to allow bash cd .., rm *.o",
        "         asked because: it may write outside of the project",
        "         may change files: rm *.o",
        "         weft permission reply per_1 once   (or always), then continue with weft run -c",
    ]
