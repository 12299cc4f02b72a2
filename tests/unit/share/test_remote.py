"""What a share server may answer."""

from hypothesis import example, given

from given.damage import allow_refusal, damaged_bytes, damaged_values, to_json
from weft.errors import SharingError
from weft.model.share import ShareTicket
from weft.share.remote import to_ticket

SERVER = "https://ada:secret@share.example.org"
ANSWERS = damaged_values({"id": "abc", "url": "https://share.example.org/s/abc", "secret": "s"}).map(to_json)


@given(ANSWERS | ANSWERS.flatmap(damaged_bytes))
@example(b'{"id": "abc", "url": "https://[", "secret": "s"}')
@example(b'{"id": "abc", "url": "https://a:99999", "secret": "s"}')
def test_whatever_a_share_server_answers_is_a_share_or_refused(answer: bytes) -> None:
    with allow_refusal(SharingError, naming="https://share.example.org answered with something other"):
        assert isinstance(to_ticket(answer, SERVER), ShareTicket)
