import io
import json
import signal
import subprocess
import sys

import pytest
from PIL import Image

from workshop_gpu.cli import main
from workshop_gpu.cli.progress import ProgressLine, bar
from workshop_gpu.client.images import read_metadata


def run(*arguments):
    return main(["generate", *arguments])


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["x", "--model", "nope"], 'There is no model "nope"'),
        (["  "], "the prompt is empty"),
        (["x", "--size", "7x7"], "7 is not"),
        (["x", "--size", "100000x128"], "width: 100000 pixels are too many"),
        (["x", "--steps", "0"], "steps: 0 is not"),
        (["x", "--steps", "1000000000"], "steps: 1000000000 is not"),
        (["x", "--seed", "-1"], "seed: -1 is not"),
        (["x", "--seed", str(2**80)], "seed: "),
        (["x", "--images", "100"], "images: 100 is not"),
        (["x", "-o", "/nowhere/a.png"], "/nowhere is no folder"),
        (["x", "-o", "a.gif"], "must end in .png"),
        (["x", "--placement", "turbo"], '"turbo" is none of auto, resident'),
        (["x", "--device", "tpu"], '"tpu" is no device'),
    ],
)
def test_a_bad_request_is_refused_in_one_line_before_anything_starts(
    arguments, words, capsys, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    assert run(*arguments) == 1
    printed = capsys.readouterr()
    assert printed.out == ""
    assert words in printed.err
    assert printed.err.startswith("workshop-gpu: ")
    assert len(printed.err.strip().splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("arguments", [[], ["x", "--size", "7"], ["x", "--seed", "x"]])
def test_wrong_usage_ends_with_status_2(arguments, capsys):
    with pytest.raises(SystemExit) as ended:
        run(*arguments)
    assert ended.value.code == 2
    assert "usage:" in capsys.readouterr().err


def test_a_model_that_is_switched_off_or_unusable_is_refused(tmp_path, capsys):
    file = tmp_path / "models.toml"
    file.write_text(
        '[[model]]\nid = "off"\nshipped = "shapes"\nenabled = false\nreason = "on Thursday"\n'
        '[[model]]\nid = "pickled"\nsource = { file = "model.ckpt" }\n'
    )
    assert run("x", "--model", "off", "--models-file", str(file)) == 1
    assert "on Thursday" in capsys.readouterr().err
    assert run("x", "--model", "pickled", "--models-file", str(file)) == 1
    assert "pickle" in capsys.readouterr().err


def test_progress_on_a_pipe_is_a_line_per_stage():
    stream = io.StringIO()
    line = ProgressLine(stream)
    line.show("loading", "1")
    line.show("loading", "2")
    line.show("drawing", "1")
    line.close()
    assert stream.getvalue() == "loading\ndrawing\n"


def test_progress_on_a_terminal_rewrites_its_line_and_clears_it():
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    stream = Terminal()
    line = ProgressLine(stream)
    line.show("loading", bar(1, 2, width=4))
    line.show("ok")
    line.close()
    assert stream.getvalue() == "\rloading ██░░\rok          \r" + " " * 2 + "\r"


def command(*arguments):
    entry = "import sys; from workshop_gpu.cli import main; sys.exit(main())"
    device = ["--device", "cpu:2GB", "--threads", "1"]
    return [sys.executable, "-c", entry, "generate", *arguments, *device]


def test_a_picture_is_made_from_the_command_line_without_a_server(tmp_path):
    done = subprocess.run(
        command(
            *("a red circle", "--seed", "7", "--steps", "3", "--images", "2"),
            *("-o", "p.png", "--profile", "--placement", "all-streamed"),
        ),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["p-1.png", "p-2.png"]
    assert "drawing" in done.stderr
    tables = done.stderr.split("Waiting for copies")
    assert len(tables) == 3
    for table in tables[1:]:
        steps = [line.split() for line in table.splitlines() if line.endswith(" ms")]
        assert [line[0] for line in steps] == ["1", "2", "3"]
        assert all(float(line[1]) > 0 for line in steps), "all its blocks are copied at each step"
    with Image.open(tmp_path / "p-2.png") as image:
        assert image.size == (128, 128)
        assert "a red circle" in json.dumps(image.info)


def test_a_swap_device_is_left_aside_unless_the_rung_takes_memory_of_it(tmp_path):
    (tmp_path / "models.toml").write_text(
        '[[model]]\nid = "s"\nshipped = "shapes-dit"\nmemory = { swap_device = "cpu:1" }\n'
    )

    def made(output, *options):
        arguments = ("a star", "--model", "s", "--models-file", "models.toml", "--steps", "1")
        done = subprocess.run(
            command(*arguments, *options, "-o", output),
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stderr, read_metadata(tmp_path / output).get("placement", "")

    told, placement = made("alone.png")
    assert '"cpu:1" is left aside' in told
    assert placement == ""
    told, placement = made("beside.png", "--placement", "swap-encoders")
    assert "left aside" not in told
    assert "cpu:1" in placement


def test_ctrl_c_cancels_and_leaves_nothing(tmp_path):
    process = subprocess.Popen(
        command("x", "--steps", "100", "--images", "8"),
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        assert process.stderr is not None
        for line in process.stderr:
            if "drawing" in line:
                process.send_signal(signal.SIGINT)
                break
        assert "workshop-gpu: cancelled" in process.stderr.read()
    assert process.returncode == 130
    assert list(tmp_path.iterdir()) == []
