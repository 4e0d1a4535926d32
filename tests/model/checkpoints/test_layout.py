"""What a checkpoint folder says of itself."""

import json
from pathlib import Path
from typing import Any

import pytest

from model.checkpoints.layout import read_layout
from model.checkpoints.source import resolve
from model.contract import PoolingMode
from model.errors import CheckpointError
from model.files import read_json
from model.modules import listing
from tests.references.checkpoints import MINILM

BEFORE = "sentence_transformers.models"
SINCE = "sentence_transformers.sentence_transformer.modules"


def write(folder: Path, name: str, content: Any) -> None:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content), encoding="utf-8")


def write_modules(folder: Path, *types: str) -> None:
    """A modules.json of these types; the first lies in the folder itself, as they are saved."""
    entries = [
        {"idx": i, "name": str(i), "path": f"{i}_{kind.rpartition('.')[2]}" if i else "", "type": kind}
        for i, kind in enumerate(types)
    ]
    write(folder, "modules.json", entries)


def test_the_embedded_model_is_read_as_its_authors_meant_it() -> None:
    """all-MiniLM-L6-v2: mean pooling, unit length, 256 tokens (not the tokenizer's 512)."""
    folder = resolve(MINILM)
    layout = read_layout(folder)
    assert layout.transformer == folder
    assert (layout.pooling, layout.normalize, layout.sentence.max_length) == (("mean",), True, 256)
    assert (layout.include_prompt, layout.steps, layout.prompts) == (True, (), {})


def test_a_plain_folder_is_a_transformer_with_mean_pooling(tmp_path: Path) -> None:
    """Without modules.json there is no pooling of its own, no normalisation, and the tokenizer's limit."""
    write(tmp_path, "tokenizer_config.json", {"model_max_length": 48})
    layout = read_layout(tmp_path)
    assert (layout.transformer, layout.pooling, layout.normalize) == (tmp_path, ("mean",), False)
    assert layout.sentence.max_length == 48


@pytest.mark.parametrize(
    ("config", "pooling"),
    [
        ({"architectures": ["Qwen3ForCausalLM"]}, "last"),
        ({"architectures": ["Qwen3ForCausalLM"], "is_causal": False}, "mean"),
        ({"architectures": ["Qwen3Model"]}, "mean"),
        ({"architectures": "Qwen3ForCausalLM"}, "mean"),
    ],
    ids=str,
)
def test_a_plain_folder_of_what_continues_texts_has_its_last_token(
    config: dict[str, Any], pooling: PoolingMode, tmp_path: Path
) -> None:
    """As sentence-transformers 6 pools it, unless tokens attend to later ones too."""
    write(tmp_path, "config.json", config)
    assert read_layout(tmp_path).pooling == (pooling,)


MODES: list[tuple[dict[str, Any], tuple[PoolingMode, ...]]] = [
    ({"pooling_mode_cls_token": True}, ("cls",)),
    ({"pooling_mode_mean_tokens": True, "pooling_mode_cls_token": False}, ("mean",)),
    ({"pooling_mode_max_tokens": True}, ("max",)),
    ({"pooling_mode_mean_sqrt_len_tokens": True}, ("mean_sqrt_len",)),
    ({"pooling_mode_weightedmean_tokens": True}, ("weighted_mean",)),
    ({"pooling_mode_lasttoken": True}, ("last",)),
    ({"pooling_mode_mean_tokens": True, "pooling_mode_max_tokens": True}, ("max", "mean")),
    ({"pooling_mode_lasttoken": True, "pooling_mode_cls_token": True}, ("cls", "last")),
    ({"pooling_mode_mean_tokens": False}, ("mean",)),
    ({"pooling_mode": "cls"}, ("cls",)),
    ({"pooling_mode": "mean_sqrt_len_tokens"}, ("mean_sqrt_len",)),
    ({"pooling_mode": ["mean"]}, ("mean",)),
    ({"pooling_mode": ["weightedmean", "lasttoken", "max"]}, ("weighted_mean", "last", "max")),
]


@pytest.mark.parametrize(("config", "modes"), MODES)
def test_pooling_is_read_in_both_ways_of_writing_it(
    tmp_path: Path, config: dict[str, Any], modes: tuple[PoolingMode, ...]
) -> None:
    """Before sentence-transformers 5.4 booleans, in a fixed order; since then a word or an ordered list."""
    before = "pooling_mode" not in config
    kinds = (
        (f"{BEFORE}.Transformer", f"{BEFORE}.Pooling")
        if before
        else ("sentence_transformers.base.modules.transformer.Transformer", f"{SINCE}.pooling.Pooling")
    )
    write_modules(tmp_path, *kinds)
    write(tmp_path, "1_Pooling/config.json", config)
    assert read_layout(tmp_path).pooling == modes


@pytest.mark.parametrize("prefix", [BEFORE, SINCE])
def test_every_module_finds_its_place(tmp_path: Path, prefix: str) -> None:
    """Transformer, Pooling, two Dense and Normalize, with prompts and the lower-casing asked for."""
    kinds = ("Transformer", "Pooling", "Dense", "Dense", "Normalize")
    write_modules(tmp_path, *(f"{prefix}.{kind}" for kind in kinds))
    write(tmp_path, "1_Pooling/config.json", {"pooling_mode": "cls", "include_prompt": False})
    write(tmp_path, "sentence_bert_config.json", {"max_seq_length": 99, "do_lower_case": True})
    write(tmp_path, "tokenizer_config.json", {"model_max_length": 512})
    prompts = {"query": "q: ", "passage": ""}
    general = {"prompts": prompts, "default_prompt_name": "query", "similarity_fn_name": "dot"}
    write(tmp_path, "config_sentence_transformers.json", general)
    layout = read_layout(tmp_path)
    assert layout.steps == (("Dense", tmp_path / "2_Dense"), ("Dense", tmp_path / "3_Dense"))
    assert (layout.normalize, layout.include_prompt, layout.sentence.lower_case) == (True, False, True)
    assert (layout.prompts, layout.default_prompt_name) == (prompts, "query")
    assert layout.similarity == "dot"
    assert layout.sentence.max_length == 99


@pytest.mark.parametrize("general", [{}, {"similarity_fn_name": None}])
def test_vectors_are_compared_by_their_cosine_where_no_function_is_named(
    tmp_path: Path, general: dict[str, Any]
) -> None:
    """As sentence-transformers does; it writes null where nobody chose."""
    write_modules(tmp_path, f"{BEFORE}.Transformer")
    write(tmp_path, "config_sentence_transformers.json", general)
    assert read_layout(tmp_path).similarity == "cosine"


def test_an_old_pooling_file_can_leave_the_prompt_out(tmp_path: Path) -> None:
    """include_prompt: false stood beside the booleans, too."""
    write_modules(tmp_path, f"{BEFORE}.Transformer", f"{BEFORE}.Pooling")
    write(tmp_path, "1_Pooling/config.json", {"pooling_mode_mean_tokens": True, "include_prompt": False})
    assert read_layout(tmp_path).include_prompt is False


@pytest.mark.parametrize(
    ("own", "tokenizer", "limit"),
    [(99, 512, 99), (600, 512, 600), (None, 512, 512), (None, None, None), (None, int(1e30), None)],
)
def test_the_limit_is_sentence_transformers_own_where_it_is_given(
    tmp_path: Path, own: int | None, tokenizer: int | None, limit: int | None
) -> None:
    """max_seq_length goes before model_max_length, and a number of thirty digits is no limit."""
    write_modules(tmp_path, f"{BEFORE}.Transformer")
    write(tmp_path, "sentence_bert_config.json", {"max_seq_length": own})
    write(tmp_path, "tokenizer_config.json", {"model_max_length": tokenizer} if tokenizer else {})
    assert read_layout(tmp_path).sentence.max_length == limit


@pytest.mark.parametrize(
    "kinds",
    [
        ("Transformer", "Pooling", "WordWeights"),
        ("Pooling",),
        (),
        ("Transformer", "Dense", "Pooling"),
        ("Transformer", "SpladePooling", "Normalize"),
        ("Transformer", "Pooling", "Pooling"),
        ("Transformer", "Transformer"),
    ],
)
def test_modules_that_are_not_computed_are_refused(tmp_path: Path, kinds: tuple[str, ...]) -> None:
    """A module that headlight does not have, or in an order that it does not run, is never skipped."""
    write_modules(tmp_path, *(f"{BEFORE}.{kind}" for kind in kinds))
    write(tmp_path, "1_Pooling/config.json", {})
    sentence = (
        r"modules\.json lists .*: headlight serves a Transformer .* To serve other modules, export the model "
        r"as an ONNX graph that returns sentence_embedding, to a folder without modules\.json\.$"
    )
    with pytest.raises(CheckpointError, match=sentence):
        read_layout(tmp_path)


@pytest.mark.parametrize(
    ("name", "text", "sentence"),
    [
        ("modules.json", "{", "modules.json cannot be read"),
        ("modules.json", "{}", "modules.json holds a dict, not a list"),
        ("modules.json", '["Transformer"]', "every module needs a type and a path"),
        ("modules.json", '[{"type": "a.Transformer"}]', "every module needs a type and a path"),
        ("tokenizer_config.json", "[]", "tokenizer_config.json holds a list, not a dict"),
        (
            "tokenizer_config.json",
            '{"model_max_length": "x"}',
            "model_max_length is 'x'; it must be a whole number",
        ),
        ("tokenizer_config.json", '{"a": "\udcff"}', "cannot be read"),
    ],
)
def test_a_damaged_description_is_refused(tmp_path: Path, name: str, text: str, sentence: str) -> None:
    """Whatever is wrong with a file, the refusal names it."""
    (tmp_path / name).write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(CheckpointError) as refusal:
        read_layout(tmp_path)
    assert sentence in str(refusal.value)


@pytest.mark.parametrize("mode", ["median", [], ["mean", "median"]])
def test_an_unknown_pooling_mode_is_refused(tmp_path: Path, mode: str | list[str]) -> None:
    """A pooling that headlight does not know is never replaced by another."""
    write_modules(tmp_path, f"{SINCE}.Transformer", f"{SINCE}.Pooling")
    write(tmp_path, "1_Pooling/config.json", {"pooling_mode": mode})
    with pytest.raises(CheckpointError, match=r"pooling_mode is .*; it must be made of"):
        read_layout(tmp_path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    """Only optional files may be missing; they are empty then."""
    with pytest.raises(CheckpointError, match=r"a\.json is missing"):
        read_json(tmp_path / "a.json")
    assert read_json(tmp_path / "a.json", optional=True) == {}


def test_modules_without_end_are_counted_before_their_folders_are_looked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To follow the links of a folder takes 50 µs, and a list has room for a million."""
    entries = [{"type": "x.Transformer", "path": "a/" * 100} for _ in range(50_000)]
    (tmp_path / "modules.json").write_text(json.dumps(entries), encoding="utf-8")
    looked = []
    monkeypatch.setattr(listing, "_inside", lambda *_: looked.append(1))
    with pytest.raises(CheckpointError, match="at most 64 modules in all"):
        read_layout(tmp_path)
    assert not looked
