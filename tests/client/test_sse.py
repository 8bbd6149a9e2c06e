"""The parser of server-sent events."""

import pytest

from workshop_gpu.client.sse import Message, Parser


def parsed(*pieces: bytes) -> list[Message]:
    parser = Parser()
    return [message for piece in pieces for message in parser.feed(piece)]


def test_an_event_has_id_name_and_data() -> None:
    assert parsed(b"id: a-1\nevent: job\ndata: {}\n\n") == [Message("a-1", "job", "{}")]


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_lines_may_end_in_each_of_three_ways(end: bytes) -> None:
    text = end.join([b"id: 1", b"data: x", b"", b"data: y", b"", b""]) + b"data: z"
    assert parsed(text) == [Message("1", "message", "x"), Message("1", "message", "y")]


@pytest.mark.parametrize("size", [1, 2, 3, 7])
def test_pieces_may_be_cut_anywhere_even_within_a_letter_or_a_line_end(size: int) -> None:
    text = "id: 1\r\ndata: a ‘zürich’ star ★\r\n\r\ndata: next\r\n\r\n".encode()
    pieces = [text[i : i + size] for i in range(0, len(text), size)]
    assert [m.data for m in parsed(*pieces)] == ["a ‘zürich’ star ★", "next"]


def test_several_data_lines_are_one_text() -> None:
    assert parsed(b"data: a\ndata:b\n\n")[0].data == "a\nb"


def test_comments_and_events_without_data_are_dropped() -> None:
    assert parsed(b": ping\n\nevent: job\n\n") == []


def test_the_id_holds_until_the_next_one() -> None:
    assert [m.id for m in parsed(b"id: 5\ndata: a\n\ndata: b\n\n")] == ["5", "5"]


def test_an_unfinished_event_is_not_given_out() -> None:
    assert parsed(b"data: half\n") == []
