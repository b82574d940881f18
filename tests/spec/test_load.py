"""Loading a spec: three sources, their order, where each leaf came from, files that are broken."""

import pytest

from stepladder.core.errors import SpecError
from stepladder.spec.load import load_spec, parse_assignment
from stepladder.spec.run import RunSpec
from stepladder.spec.study import StudySpec


def write(folder, text, name="run.toml"):
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def test_defaults_then_file_then_set(tmp_path):
    path = write(tmp_path, "[optim]\nlr = 1e-3\nbeta1 = 0.8\n")
    loaded = load_spec(RunSpec, path, ["optim.lr=1e-5", "model.path=ladder-x2"])
    assert (loaded.spec.optim.lr, loaded.spec.optim.beta1, loaded.spec.optim.beta2) == (
        1e-5,
        0.8,
        0.999,
    )
    origins = [loaded.provenance[f"optim.{leaf}"] for leaf in ("lr", "beta1", "beta2")]
    assert origins == ["--set", "run.toml", "default"]
    assert loaded.provenance["model.path"] == "--set"
    assert loaded.folder == tmp_path


def test_every_leaf_has_an_origin():
    loaded = load_spec(StudySpec, sets=["base.optim.lr=1e-4"])
    assert set(loaded.provenance) == set(loaded.spec.leaves())


@pytest.mark.parametrize(
    ("text", "name"),
    [("optim: {lr: 1e-6}\n", "run.yaml"), ('{"optim": {"lr": 1e-6}}', "run.json")],
)
def test_yaml_and_json_are_read(tmp_path, text, name):
    assert load_spec(RunSpec, write(tmp_path, text, name)).spec.optim.lr == 1e-6


def test_empty_yaml_gives_the_defaults(tmp_path):
    assert load_spec(RunSpec, write(tmp_path, "", "run.yaml")).spec == RunSpec()


@pytest.mark.parametrize(
    ("text", "name", "says"),
    [
        (
            "[optim]\nlr = ",
            "run.toml",
            r"SL0105 .*run\.toml: is not valid TOML: .*end of document.*complete",
        ),
        ("optim: [1", "run.yaml", "SL0105 .*is not valid YAML: .*line"),
        ("- 1\n", "run.yaml", "does not hold settings at its top level"),
    ],
)
def test_half_written_files_are_named(tmp_path, text, name, says):
    with pytest.raises(SpecError, match=says) as caught:
        load_spec(RunSpec, write(tmp_path, text, name))
    assert len(str(caught.value).splitlines()) == 1


def test_files_that_cannot_be_read_are_named(tmp_path):
    with pytest.raises(SpecError, match=r"SL0104 .*gone.toml: cannot be read"):
        load_spec(RunSpec, tmp_path / "gone.toml")
    (tmp_path / "latin.toml").write_bytes(b'name = "\xe9"')
    with pytest.raises(SpecError, match=r"SL0104 .*latin.toml: cannot be read"):
        load_spec(RunSpec, tmp_path / "latin.toml")


@pytest.mark.parametrize(
    ("assignment", "expected"),
    [
        ("optim.lr=1e-4", ("optim.lr", 1e-4)),
        ("model.path=ladder-x2", ("model.path", "ladder-x2")),
        ("seeds=[1, 2]", ("seeds", [1, 2])),
        ("record.store_text=false", ("record.store_text", False)),
        ('name="a=b"', ("name", "a=b")),
    ],
)
def test_assignments_are_toml_or_a_bare_word(assignment, expected):
    assert parse_assignment(assignment) == expected


@pytest.mark.parametrize("assignment", ["optim.lr", "=3", ""])
def test_assignments_without_a_path_or_value_are_refused(assignment):
    with pytest.raises(SpecError, match=r"SL0106 --set: .*is not path=value"):
        parse_assignment(assignment)


def test_a_model_folder_is_found_from_where_the_file_lies(tmp_path, monkeypatch):
    (tmp_path / "models" / "tiny").mkdir(parents=True)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    run = load_spec(RunSpec, write(tmp_path, '[model]\npath = "models/tiny"\n')).spec
    assert run.model.path == str((tmp_path / "models" / "tiny").resolve())
    text = '[axes]\nmodel = ["models/tiny", "ladder-x1"]\n'
    study = load_spec(StudySpec, write(tmp_path, text, "study.toml")).spec
    assert study.axes.model == (run.model.path, "ladder-x1")
