import pytest

from workshop_gpu.cli import main


@pytest.fixture
def file(tmp_path):
    return tmp_path / "folder" / "models.toml"


def test_a_file_is_written_to_start_from_and_never_over_another(file, capsys):
    assert main(["models", "--init", "--models-file", str(file)]) == 0
    assert capsys.readouterr().out.strip() == str(file)
    file.write_text("# mine\n")
    assert main(["models", "--init", "--models-file", str(file)]) == 1
    assert "exists already" in capsys.readouterr().err
    assert file.read_text() == "# mine\n"


def test_the_table_shows_state_size_and_defaults(file, capsys):
    main(["models", "--init", "--models-file", str(file)])
    capsys.readouterr()
    assert main(["models", "--models-file", str(file)]) == 0
    printed = capsys.readouterr().out
    row = next(line for line in printed.splitlines() if line.startswith("shapes-dit-turbo"))
    assert "on this disk" in row
    assert "4 steps, 128x128" in row
    assert "MB" in row


def test_problems_stand_below_their_model_and_mistakes_end_with_status_1(file, capsys):
    file.parent.mkdir()
    file.write_text(
        '[[model]]\nid = "gone"\nsource = { folder = "nowhere" }\n'
        '[[model]]\nid = "off"\nshipped = "shapes"\nenabled = false\nreason = "later"\n'
        '[[model]]\nid = "bad"\nshipped = "shapes"\nstepps = 3\n'
    )
    assert main(["models", "--models-file", str(file)]) == 1
    printed = capsys.readouterr()
    assert "unusable" in printed.out
    assert "nowhere does not exist" in printed.out
    assert "switched off" in printed.out
    assert "    later" in printed.out
    assert (
        'models.toml line 12: unknown key "stepps" (did you mean "steps" in defaults?)'
        in printed.err
    )
