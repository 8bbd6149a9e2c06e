import pytest
from hypothesis import given
from hypothesis import strategies as st

from workshop_gpu.catalogue.lines import find_places, line_of
from workshop_gpu.catalogue.template import TEMPLATE
from workshop_gpu.catalogue.toml_file import parse_models, read_models, set_field

GOOD = """\
# Our models
[[model]]
id = "sdxl"                    # the big one
title = "SDXL"
source = { hub = "stabilityai/sdxl-turbo", variant = "fp16" }
defaults = { steps = 4, guidance = 0, width = 512, height = 512 }

[[model]]
id = "ours"
keep_warm_s = 60
pin = true
[model.source]
folder = "models/ours"
[model.limits]
max_steps = 40
"""


def mistakes(text):
    return [mistake.text("models.toml") for mistake in parse_models(text).mistakes]


def one_model(extra):
    return f'[[model]]\nid = "a"\nsource = {{ folder = "x" }}\n{extra}\n'


def test_a_good_file_gives_its_models_in_order():
    read = parse_models(GOOD)
    assert not read.mistakes
    assert [spec.id for spec in read.specs] == ["sdxl", "ours"]
    assert read.specs[0].defaults.guidance == 0.0
    assert read.specs[1].limits.max_steps == 40
    assert read.specs[1].pin


def test_the_template_has_no_mistake_and_offers_the_shipped_models():
    read = parse_models(TEMPLATE)
    assert not read.mistakes
    assert [spec.id for spec in read.specs] == ["shapes", "shapes-dit", "shapes-dit-turbo"]


def test_the_examples_of_the_template_have_no_mistake_either():
    examples = "\n".join(
        line.removeprefix("# ")
        for line in TEMPLATE.splitlines()
        if "]]\n" in f"{line}\n" or " = " in line
    )
    read = parse_models(examples)
    assert not read.mistakes
    assert len(read.specs) == 6


@pytest.mark.parametrize("text", ["a = " + "[" * 5000, "a = " + "9" * 5000])
def test_a_file_that_no_parser_takes_is_a_mistake_and_not_a_crash(text):
    [mistake] = parse_models(text).mistakes
    assert mistake.reason


def test_a_wrong_key_is_named_with_its_line_and_the_right_one():
    text = GOOD.replace("{ steps = 4", "{ stepps = 4")
    assert mistakes(text) == ['models.toml line 6: unknown key "stepps" (did you mean "steps"?)']


def test_a_wrong_key_in_a_table_of_its_own_is_found_on_its_line():
    text = GOOD.replace("max_steps", "max_stepps")
    assert mistakes(text) == [
        'models.toml line 15: unknown key "max_stepps" (did you mean "max_steps"?)'
    ]


def test_a_wrong_table_at_the_top_is_named():
    assert mistakes("[[models]]\nid = 'a'\n") == [
        'models.toml line 1: unknown key "models" (did you mean "model"?)'
    ]


def test_one_bracket_instead_of_two_is_explained():
    assert mistakes('[model]\nid = "a"\n') == [
        "models.toml line 1: models are written as [[model]] tables, with two brackets"
    ]


def test_broken_toml_is_reported_with_its_line():
    (text,) = mistakes('[[model]]\nid = "a"\ntitle = "no end\n')
    assert text.startswith("models.toml line 3: not valid TOML: ")


@pytest.mark.parametrize(
    ("extra", "reason"),
    [
        ("pin = 1", "pin must be true or false, not a whole number"),
        ('keep_warm_s = "long"', "keep_warm_s must be a number, not text"),
        ("title = 7", "title must be text, not a whole number"),
        ("defaults = 7", "defaults is a table: defaults = { steps = … }"),
        ("defaults = { steps = 2.5 }", "steps must be a whole number, not a number"),
        ("defaults = { steps = true }", "steps must be a whole number, not true or false"),
        ("keep_warm_s = -1", "keep_warm_s must be 0 or more"),
        ("keep_warm_s = nan", "keep_warm_s must be 0 or more"),
        ("vram_gb = -2", "vram_gb must be 0 or more"),
        ('kind = "ollama"', 'kind "ollama" is not known; it is diffusers'),
        ('dtype = "fp16"', 'dtype "fp16" is not known; it is float32, float16, bfloat16'),
        ("defaults = { steps = 0 }", "steps must be 1 to max_steps (150)"),
        ("defaults = { guidance = -1 }", "guidance must be 0 or more"),
        (
            "defaults = { width = 7 }",
            "width must be a multiple of 8; 0, or nothing, is the model's own",
        ),
        (
            "defaults = { height = -8 }",
            "height must be a multiple of 8; 0, or nothing, is the model's own",
        ),
        ("defaults = { width = 8192 }", "width must be at most max_side (4096)"),
        ("limits = { max_steps = 0 }", "max_steps must be 1 or more"),
        ("limits = { max_pixels = 50 }", "max_pixels leaves no room for the smallest size, 8 x 8"),
        ("limits = { max_side = 7 }", "max_side leaves no room for the smallest size, 8 x 8"),
    ],
)
def test_a_wrong_value_is_reported_on_its_line(extra, reason):
    found = mistakes(one_model(extra))
    assert f"models.toml line 4: {reason}" in found or f"models.toml line 1: {reason}" in found


@pytest.mark.parametrize("bad", ["", "-x", "a b", "a/b", "../a", "a" * 65, "ä"])
def test_an_id_that_cannot_stand_in_an_address_is_refused(bad):
    (text,) = mistakes(f'[[model]]\nid = "{bad}"\nsource = {{ folder = "x" }}\n')
    assert text.startswith(f'models.toml line 2: id "{bad[:80]}" must be')


def test_an_id_twice_is_refused_and_the_first_named():
    text = one_model("") + one_model("")
    assert mistakes(text) == ['models.toml line 6: a second model "a" (the first: line 1)']


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ('{ folder = "a", file = "b" }', "folder and file"),
        ("{ }", "none"),
        ('{ variant = "fp16" }', "none"),
    ],
)
def test_a_source_that_is_not_exactly_one_is_refused(source, found):
    assert mistakes(f'[[model]]\nid = "a"\nsource = {source}\n') == [
        f"models.toml line 3: source names exactly one of folder, hub and file, here: {found}"
    ]


@pytest.mark.parametrize(
    ("source", "word"),
    [
        ('{ hub = "no-slash" }', "no Hugging Face id"),
        ('{ hub = "a/../../b" }', "no Hugging Face id"),
        ('{ hub = "a/b", revision = "../x" }', "revision is"),
        ('{ hub = "a/b", variant = "../x" }', "variant is"),
        ('{ folder = "a", revision = "main" }', "revision goes with hub"),
        ('{ file = "a.safetensors", variant = "fp16" }', "variant goes with"),
        ('{ folder = "a\\u0000b" }', "zero byte"),
    ],
)
def test_a_source_that_makes_no_sense_is_refused(source, word):
    (text,) = mistakes(f'[[model]]\nid = "a"\nsource = {source}\n')
    assert text.startswith("models.toml line 3: ")
    assert word in text


def test_what_is_missing_is_said():
    assert mistakes("[[model]]\n") == [
        "models.toml line 1: id is missing",
        'models.toml line 1: source is missing: source = { folder = "…" }, { hub = "…" } '
        'or { file = "…" }',
    ]


def test_all_mistakes_are_reported_at_once():
    text = one_model("pinn = true\nkeep_warm_s = -1") + one_model('kind = "x"').replace("a", "b")
    assert len(mistakes(text)) >= 3


def test_a_shipped_model_keeps_its_limits_and_takes_what_the_file_changes():
    read = parse_models('[[model]]\nid = "s"\nshipped = "shapes"\ndefaults = { steps = 5 }\n')
    assert not read.mistakes
    assert read.specs[0].defaults.steps == 5
    assert read.specs[0].defaults.width == 128
    assert read.specs[0].limits.size_multiple == 16


def test_a_shipped_model_that_does_not_exist_is_reported():
    found = mistakes('[[model]]\nid = "s"\nshipped = "shaps"\n')
    assert "models.toml line 3: shipped is one of shapes, shapes-dit, shapes-dit-turbo" in found


def test_a_file_that_cannot_be_read_is_a_mistake_and_not_a_crash(tmp_path):
    assert "cannot be read" in read_models(tmp_path).mistakes[0].text("m")
    (tmp_path / "latin.toml").write_bytes(b'title = "\xff"')
    assert read_models(tmp_path / "latin.toml").mistakes[0].text("m") == "m: is no UTF-8 text"


@given(st.text(alphabet="[]{}=\"#\n'.,abmodel \\0123", max_size=200))
def test_no_text_makes_the_reader_fail(text):
    parse_models(text)
    parse_models("[[model]]\n" + text)


def test_lines_are_found_behind_strings_that_look_like_tables():
    text = 'a = """\n[b]\nc = 1\n"""\nd = "x = 1 # no comment"  # e = 2\n[f] # g = 3\nh = 1\n'
    places = find_places(text)
    assert line_of(places, ("d",)) == 5
    assert line_of(places, ("f", "h")) == 7
    assert ("b",) not in places
    assert ("e",) not in places


def test_a_change_is_written_back_and_comments_stay(tmp_path):
    path = tmp_path / "models.toml"
    path.write_text(GOOD)
    path.chmod(0o640)
    set_field(path, "sdxl", "pin", True)
    set_field(path, "sdxl", "defaults.steps", 6)
    set_field(path, "ours", "defaults.steps", 9)
    read = read_models(path)
    assert not read.mistakes
    assert read.specs[0].pin
    assert [spec.defaults.steps for spec in read.specs] == [6, 9]
    assert "# the big one" in path.read_text()
    assert path.read_text().startswith("# Our models\n")
    assert path.stat().st_mode & 0o777 == 0o640
    assert [file.name for file in tmp_path.iterdir()] == ["models.toml"]


def test_a_change_that_would_be_a_mistake_is_not_written(tmp_path):
    path = tmp_path / "models.toml"
    path.write_text(GOOD)
    with pytest.raises(ValueError, match="steps must be 1 to max_steps"):
        set_field(path, "sdxl", "defaults.steps", 0)
    with pytest.raises(KeyError):
        set_field(path, "nobody", "pin", True)
    assert path.read_text() == GOOD
