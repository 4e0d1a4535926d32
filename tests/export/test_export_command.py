"""The command line of the exporter: its arguments, its help, and what it needs."""

import sys

import pytest

from export.__main__ import main


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ([], "MODEL, OUT_DIR"),
        (["a"], "OUT_DIR"),
        (["a", "b", "c"], "c"),
        (["a", "b", "--dtype", "bfloat16"], "'bfloat16'"),
        (["a", "b", "--quantize", "int4"], "'int4'"),
        (["a", "b", "--quantize", "int8", "--dtype", "float16"], "remove --dtype float16"),
        (["a", "b", "--for", "vnni"], "--for vnni applies only to int8 graphs: add --quantize int8"),
        (["a", "b", "--quantize", "int8", "--for", "avx2"], "'avx2'"),
        (["a", "b", "--nothing"], "--nothing"),
    ],
)
def test_wrong_arguments_are_exit_code_2(
    capsys: pytest.CaptureFixture[str], arguments: list[str], named: str
) -> None:
    """With what is wrong on standard error."""
    with pytest.raises(SystemExit) as refusal:
        main(arguments)
    assert refusal.value.code == 2
    assert named in capsys.readouterr().err


def test_the_help_names_every_argument(capsys: pytest.CaptureFixture[str]) -> None:
    """--help says what each is for."""
    with pytest.raises(SystemExit) as end:
        main(["--help"])
    assert end.value.code == 0
    out = capsys.readouterr().out
    options = ("--dtype", "--quantize", "--for", "--overwrite")
    for named in ("MODEL", "OUT_DIR", *options, "headlight --model OUT_DIR"):
        assert named in out


@pytest.mark.parametrize("library", ["torch", "onnx", "onnxscript", "onnxruntime"])
def test_a_missing_library_is_named_with_the_way_to_install_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], library: str
) -> None:
    """What exporting needs and serving does not is asked for in a sentence."""
    monkeypatch.setitem(sys.modules, library, None)
    assert main(["a", "b"]) == 1
    sentence = (
        f"Exporting needs {library}, which this environment lacks: "
        "run `pip install '.[export]'` in a checkout of headlight."
    )
    assert capsys.readouterr().err == f"export: {sentence}\n"
