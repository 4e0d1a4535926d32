"""A graph of a family that only its graph runs serves embeddings: those of transformers, pooled."""

import json
import re
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from torch import Tensor

from model.contract import SentenceWant, Want
from model.errors import CheckpointError
from model.families.graph_only import read_config
from model.families.table import FAMILIES as SERVED
from model.families.table import explain_unsupported, find_family
from model.loading import load_model
from tests.model.checkpoints.test_layout import BEFORE, write, write_modules
from tests.references.checkpoints import write_tokenizer
from tests.references.comparing import relative_distance
from tests.support.product import run
from tests.support.serving import answered, assert_problem, post, serve

ROOT = Path(__file__).parents[2]
TEXTS = ["the man beats the boy", "a", "hello world " * 40, "boy"]
SMALL = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48}
FAMILIES: dict[str, tuple[str, dict[str, Any], int]] = {
    "data2vec-text": ("Data2VecText", {**SMALL, "max_position_embeddings": 66, "type_vocab_size": 1}, 64),
    "xmod": ("Xmod", {**SMALL, "max_position_embeddings": 42, "default_language": "en_XX"}, 40),
    "ernie": ("Ernie", {**SMALL, "max_position_embeddings": 64}, 64),
    "squeezebert": (
        "SqueezeBert",
        {**SMALL, "embedding_size": 32, "layer_norm_eps": 0.1, "max_position_embeddings": 48},
        48,
    ),
    "mobilebert": (
        "MobileBert",
        {**SMALL, "max_position_embeddings": 48, "intra_bottleneck_size": 16, "embedding_size": 16},
        48,
    ),
    "layoutlm": ("LayoutLM", {**SMALL, "max_position_embeddings": 48}, 48),
}
"""model_type -> what its classes are called, its sizes, and how many tokens it reads."""


class Traced(torch.nn.Module):
    """What other exporters trace, with the segments that a family takes."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, ids: Tensor, mask: Tensor) -> Any:
        return self.model(input_ids=ids, attention_mask=mask).last_hidden_state


def write_family(folder: Path, family: str, *, weights: bool) -> Any:
    """Write a folder of sentence-transformers with onnx/model.onnx; returns the model of transformers."""
    name, sizes, _ = FAMILIES[family]
    vocabulary = write_tokenizer(folder, model_max_length=10**6)
    torch.manual_seed(0)
    config = getattr(transformers, f"{name}Config")(vocab_size=vocabulary, **sizes)
    model = transformers.AutoModel.from_config(config, attn_implementation="eager").eval()
    if weights:
        model.save_pretrained(folder)
    config.save_pretrained(folder)
    (folder / "onnx").mkdir()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the tracer's own
        torch.onnx.export(
            Traced(model).eval(),  # or the tracer turns training on when it is done
            (torch.full((2, 7), 5), torch.tensor([[1] * 7, [1] * 4 + [0] * 3])),
            folder / "onnx/model.onnx",
            dynamo=False,
            opset_version=17,
            input_names=["input_ids", "attention_mask"],
            output_names=["last_hidden_state"],
            dynamic_axes={n: {0: "batch", 1: "length"} for n in ("input_ids", "attention_mask")},
        )
    write_modules(folder, *(f"{BEFORE}.{kind}" for kind in ("Transformer", "Pooling", "Normalize")))
    write(folder, "1_Pooling/config.json", {"pooling_mode_mean_tokens": True})
    return model


def expected(model: Any, ids: list[int]) -> np.ndarray[Any, Any]:
    """The mean of the last hidden state of a text alone, at unit length, as sentence-transformers has it."""
    with torch.inference_mode():
        mask = torch.ones(1, len(ids), dtype=torch.int64)
        states = model(input_ids=torch.tensor([ids]), attention_mask=mask).last_hidden_state
    mean = states[0].double().mean(0).numpy()
    return np.asarray(mean / np.linalg.norm(mean))


@pytest.mark.in_turns
@pytest.mark.parametrize("weights", [False, True], ids=["graph alone", "beside weights"])
@pytest.mark.parametrize("family", FAMILIES)
def test_a_graph_of_another_family_gives_its_embeddings(family: str, weights: bool, tmp_path: Path) -> None:
    """Short and long texts in one batch, up to all the positions that the family has for a text."""
    model = write_family(tmp_path, family, weights=weights)
    tokenizer, backend = load_model(str(tmp_path), device="cpu")
    info = backend.info
    assert (info.family, info.backend, info.exposes_attention) == (family, "onnx", False)
    assert (info.layers, info.heads, info.hidden_size) == (2, 4, 32)
    assert info.max_length == FAMILIES[family][2]
    encodings = tokenizer.encode(TEXTS)
    assert max(map(len, encodings)) == info.max_length
    want = Want(SentenceWant(layers=(2,), normalize=True))
    for encoding, output in zip(encodings, run(backend, encodings, [want] * len(TEXTS)), strict=True):
        assert relative_distance(output.sentence, expected(model, encoding.token_ids)) <= 1e-5


def test_the_route_serves_it(tmp_path: Path) -> None:
    """Embeddings are answered; attention is refused with the way out."""
    model = write_family(tmp_path / "layout", "layoutlm", weights=True)
    with serve(model=tmp_path / "layout", threads=1) as service:
        data = service.encode(["the boy", "hello world"], outputs=["sentence"])["data"]
        tokenizer, _ = load_model(str(tmp_path / "layout"), device="cpu")
        ids = [e.token_ids for e in tokenizer.encode(["the boy", "hello world"])]
        for item, one in zip(data, ids, strict=True):
            assert relative_distance(item["embedding"], expected(model, one)) <= 1e-4
        assert_problem(post(service, {"inputs": "the boy"}, "/attention"), 422, "unsupported", field="model")
        assert answered(service.http.get("/info"))["models"][0]["family"] == "layoutlm"


def test_a_family_without_a_graph_says_how_it_could_be_served(tmp_path: Path) -> None:
    """The refusal names the family, those that are served from weights, and where a graph would go."""
    write_family(tmp_path, "data2vec-text", weights=True)
    (tmp_path / "onnx/model.onnx").unlink()
    with pytest.raises(
        CheckpointError, match=r"model_type 'data2vec-text' is not .* bert, .* onnx/model\.onnx"
    ):
        load_model(str(tmp_path), device="cpu")


def test_the_documents_say_what_is_refused() -> None:
    """The table of refused families has none that is served, and each is refused with those that are."""
    models = (ROOT / "docs" / "models.md").read_text(encoding="utf-8")
    table = models.partition("\n## Families that are refused\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (`.*?`) \|", table, flags=re.MULTILINE)
    refused = [name for row in rows[1:] for name in re.findall("`(.+?)`", row)]
    assert {"squeezebert", "mobilebert", "convbert", "xlm", "flaubert", "neobert"} == {*refused}
    for name in refused:
        config = {"model_type": name}
        assert find_family(config) is None
        assert ", ".join(SERVED) in explain_unsupported(config)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"hidden_size": None}, "the field 'hidden_size' is missing"),
        ({"hidden_size": 48}, "returns hidden states with 32 components"),
        ({"max_position_embeddings": 1}, "max_position_embeddings leaves -1 positions"),
        ({"pad_token_id": "x"}, "pad_token_id is 'x'; it must be a whole number"),
        ({"num_attention_heads": 5}, "hidden_size 32 is not a multiple"),
        ({"vocab_size": 10}, "the model has embeddings for only 10"),
    ],
)
def test_a_config_that_does_not_fit_the_graph_is_refused(
    change: dict[str, Any], said: str, data2vec: Path, tmp_path: Path
) -> None:
    """Sizes that are missing, of no kind, or of another model."""
    raw = {**json.loads((data2vec / "config.json").read_text()), **change}
    for path in ("tokenizer.json", "onnx/model.onnx"):
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).symlink_to(data2vec / path)
    write(tmp_path, "config.json", {name: value for name, value in raw.items() if value is not None})
    with pytest.raises(CheckpointError) as caught:
        load_model(str(tmp_path), device="cpu")
    assert said in str(caught.value)


@pytest.fixture(scope="module")
def data2vec(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A RoBERTa under a name that only its graph runs under."""
    folder = tmp_path_factory.mktemp("families") / "data2vec"
    write_family(folder, "data2vec-text", weights=False)
    return folder


def test_without_positions_the_tokenizer_says_how_long_a_text_may_be() -> None:
    """Relative positions have no end of their own."""
    sizes = {"vocab_size": 9, "d_model": 8, "num_layers": 1, "num_heads": 2}
    assert read_config({"model_type": "t5", **sizes}).position_limit is None
