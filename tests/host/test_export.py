"""Pictures as a zip that is made piece by piece."""

import json
import zipfile
from io import BytesIO

import pytest

from workshop_gpu.host.export import Names, Picture, archive, safe_name


def a_picture(tmp_path, number=0, name="faces", participant="k1", content=b"png"):
    path = tmp_path / f"{number}.png"
    path.write_bytes(content)
    metadata = {"prompt": "a <b>circle</b>", "seed": number}
    return Picture(participant, name, "org/shapes", number, 1_700_000_000.0, path, metadata)


def unzipped(pieces):
    return zipfile.ZipFile(BytesIO(b"".join(pieces)))


def test_a_folder_for_each_participant_with_pictures_and_how_they_were_made(tmp_path):
    pictures = [
        a_picture(tmp_path, 1),
        a_picture(tmp_path, 2, "Zoë & Jürgen", "k2"),
        a_picture(tmp_path, 3, content=b"another"),
    ]
    with unzipped(archive(pictures)) as zipped:
        assert zipped.testzip() is None
        assert sorted(zipped.namelist()) == [
            "Zoë-Jürgen/0001-org-shapes-seed-2.png",
            "Zoë-Jürgen/pictures.json",
            "faces/0001-org-shapes-seed-1.png",
            "faces/0002-org-shapes-seed-3.png",
            "faces/pictures.json",
        ]
        assert zipped.read("faces/0002-org-shapes-seed-3.png") == b"another"
        listed = json.loads(zipped.read("faces/pictures.json"))
        assert listed[1] == {
            "file": "0002-org-shapes-seed-3.png",
            "prompt": "a <b>circle</b>",
            "seed": 3,
        }


def test_no_more_than_one_picture_is_in_a_piece(tmp_path):
    pictures = [a_picture(tmp_path, number, content=bytes(100_000)) for number in range(5)]
    pieces = list(archive(iter(pictures)))
    assert max(map(len, pieces)) < 110_000


def test_who_gives_up_stops_the_reading(tmp_path):
    read = []

    def pictures():
        for number in range(100):
            read.append(number)
            yield a_picture(tmp_path, number)

    pieces = archive(pictures())
    next(pieces)
    pieces.close()
    assert len(read) == 1


def test_a_picture_that_is_gone_meanwhile_is_left_out(tmp_path):
    gone = a_picture(tmp_path, 1)
    gone.path.unlink()
    with unzipped(archive([gone, a_picture(tmp_path, 2)])) as zipped:
        assert zipped.namelist() == ["faces/0001-org-shapes-seed-2.png", "faces/pictures.json"]


@pytest.mark.parametrize(
    ("name", "safe"),
    [
        ("faces", "faces"),
        ("../../etc/passwd", "etc-passwd"),
        ("..", "somebody"),
        ("C:\\temp", "C-temp"),
        ("con", "con-"),
        ("COM1", "COM1-"),
        ("a\x00b\nc", "a-b-c"),
        ("", "somebody"),
        ("  ", "somebody"),
        ("名前", "名前"),
        ("x" * 500, "x" * 60),
        ("<script>", "script"),
    ],
)
def test_names_are_safe_as_file_names(name, safe):
    assert safe_name(name) == safe


def test_two_participants_of_one_name_get_two_folders():
    names = Names()
    assert [names.of("1", "Faces"), names.of("2", "faces"), names.of("1", "Faces")] == [
        "Faces",
        "faces-2",
        "Faces",
    ]
