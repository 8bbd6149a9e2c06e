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


def test_loras_stand_below_the_models_with_what_is_wrong(tmp_path, capsys):
    file = tmp_path / "models.toml"
    entry = '[[lora]]\nid = "{}"\n{}\nmodels = ["a"]\n'
    file.write_text(
        '[[model]]\nid = "a"\nshipped = "shapes"\n'
        + entry.format("outline", 'shipped = "shapes-outline"')
        + entry.format("gone", 'file = "gone.safetensors"')
    )
    assert main(["models", "--models-file", str(file)]) == 0
    _, loras = capsys.readouterr().out.split("LORA ")
    assert "outline  on this disk  1 MB     1      a" in loras
    assert "gone     unusable" in loras
    assert "No such file" in loras
