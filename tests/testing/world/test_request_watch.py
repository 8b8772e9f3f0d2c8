"""The observer of requests: frames in any pieces, counts by API, and lost responses."""

from hypothesis import given
from hypothesis import strategies as st

from ottla.testing.world.request_watch import FrameHeads


def frame(body: bytes) -> bytes:
    return len(body).to_bytes(4, "big") + body


@given(st.lists(st.binary(min_size=4, max_size=40), max_size=6), st.data())
def test_frames_are_found_in_any_pieces(bodies: list[bytes], data: st.DataObject) -> None:
    stream = b"".join(frame(body) for body in bodies)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=8)))
    heads = FrameHeads(4)

    found = [
        one
        for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True)
        for one in heads.feed(stream[start:end])
    ]

    assert found == [(len(body), body[:4]) for body in bodies]
