"""A folder becomes an encoder with every tensor accounted for, or is refused in one sentence."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from model import activations
from model.checkpoints.checkpoint import load_checkpoint
from model.contract import SentenceWant, Want
from model.errors import CheckpointError
from model.heads.dense import Dense
from model.pytorch.backend import TorchBackend
from tests.model.checkpoints.test_layout import BEFORE, write, write_modules
from tests.references.checkpoints import write_bert
from tests.references.comparing import distance
from tests.support.product import run

Tensors = dict[str, Tensor]


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small BERT, written once."""
    folder = tmp_path_factory.mktemp("bert")
    write_bert(folder)
    return folder


@pytest.fixture
def folder(saved: Path, tmp_path: Path) -> Path:
    """A copy of it to be damaged."""
    return shutil.copytree(saved, tmp_path / "model")


def rewrite(folder: Path, change: Callable[[Tensors], Any]) -> None:
    """Change the tensors of a folder in place."""
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


def edit(folder: Path, name: str, **fields: Any) -> None:
    """Change fields of a JSON file in place; None takes a field out."""
    content = json.loads((folder / name).read_text(encoding="utf-8"))
    content.update(fields)
    write(folder, name, {key: value for key, value in content.items() if value is not None})


def refusal(folder: Path) -> str:
    """The sentence with which a folder is refused."""
    with pytest.raises(CheckpointError) as caught:
        load_checkpoint(folder)
    return str(caught.value)


QUERY = "encoder.layer.1.attention.self.query.weight"
VALUE = "encoder.layer.0.attention.self.value.weight"


# ----------------------------------------------------------------------------------- the weights


def test_all_that_is_wrong_with_the_weights_is_said_at_once(folder: Path) -> None:
    """Missing, unexpected and misshapen tensors are named, by the checkpoint's names, in one error."""

    def damage(tensors: Tensors) -> None:
        del tensors[QUERY]
        del tensors["embeddings.LayerNorm.bias"]
        tensors["encoder.layer.0.adapter.weight"] = torch.zeros(2)
        tensors["encoder.layer.2.output.dense.bias"] = torch.zeros(32)
        tensors[VALUE] = torch.zeros(32, 31)
        tensors["embeddings.position_embeddings.weight"] = torch.zeros(63, 32)

    rewrite(folder, damage)
    message = refusal(folder)
    assert f"missing: embeddings.LayerNorm.bias, {QUERY};" in message
    assert (
        "unexpected: encoder.layer.0.adapter.weight, encoder.layer.2.output.dense.bias; misshapen" in message
    )
    assert f"{VALUE} (32, 31) instead of (32, 32)" in message
    assert "embeddings.position_embeddings.weight (63, 32) instead of (64, 32)" in message
    assert str(folder) in message


def test_a_transposed_matrix_is_misshapen_although_its_size_is_right(folder: Path) -> None:
    """Every shape is checked, not the number of elements; Q, K and V each on their own."""

    def transpose(tensors: Tensors) -> None:
        tensors["encoder.layer.0.intermediate.dense.weight"] = torch.zeros(32, 48)

    rewrite(folder, transpose)
    assert "intermediate.dense.weight (32, 48) instead of (48, 32)" in refusal(folder)


def test_heads_on_top_of_the_encoder_are_left_out(folder: Path) -> None:
    """The pooler, the pre-training heads and the constant of positions are known and dropped."""

    def add(tensors: Tensors) -> None:
        tensors["cls.predictions.bias"] = torch.zeros(3)
        tensors["cls.seq_relationship.weight"] = torch.zeros(2, 32)
        tensors["embeddings.position_ids"] = torch.zeros(1, 64, dtype=torch.int64)

    rewrite(folder, add)
    assert "pooler.dense.weight" in load_file(folder / "model.safetensors")
    assert load_checkpoint(folder).encoder.config.num_layers == 2


def test_weights_land_where_they_belong(folder: Path) -> None:
    """Q, K and V are one matrix, in this order, and a tensor of ours is the checkpoint's."""
    tensors = load_file(folder / "model.safetensors")
    ours = dict(load_checkpoint(folder).encoder.named_parameters())
    parts = [tensors[f"encoder.layer.1.attention.self.{part}.weight"] for part in ("query", "key", "value")]
    assert torch.equal(ours["blocks.1.attention.qkv.weight"], torch.cat(parts))
    assert torch.equal(ours["embeddings.token"], tensors["embeddings.word_embeddings.weight"])
    assert not any(parameter.requires_grad for parameter in ours.values())
    assert not any(parameter.is_meta for parameter in ours.values())


def test_only_safetensors_are_read(folder: Path) -> None:
    """A folder with pickled weights is refused without opening them, and the refusal names them."""
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(b"cos\nsystem\n(S'exit 1'\ntR.")
    message = refusal(folder)
    assert "model.safetensors is missing: only safetensors are read" in message
    assert "pytorch_model.bin" in message


@pytest.mark.parametrize("damage", [lambda data: b"", lambda data: data[:-9], lambda data: b"\xff" * 64])
def test_a_damaged_file_of_weights_is_refused(folder: Path, damage: Callable[[bytes], bytes]) -> None:
    """Empty, cut off or nonsense: the refusal names the file."""
    file = folder / "model.safetensors"
    file.write_bytes(damage(file.read_bytes()))
    assert "model.safetensors cannot be read" in refusal(folder)


@pytest.mark.parametrize(
    ("index", "sentence"),
    [
        ({"weight_map": {"a": "model-00001.safetensors"}}, "model-00001.safetensors is missing"),
        ({}, "model.safetensors.index.json has no weight_map"),
        ({"weight_map": []}, "model.safetensors.index.json has no weight_map"),
    ],
)
def test_a_damaged_list_of_shards_is_refused(folder: Path, index: Any, sentence: str) -> None:
    """A shard that is listed has to be there, unless the one file of weights is."""
    (folder / "model.safetensors").unlink()
    write(folder, "model.safetensors.index.json", index)
    assert sentence in refusal(folder)


# ----------------------------------------------------------------------------- the configuration


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"model_type": "gpt2"}, "model_type 'gpt2' is not one of the supported families: bert"),
        ({"model_type": None}, "the field model_type is missing; add it"),
        ({"model_type": ["bert"]}, "is not one of the supported families: bert"),
        ({"num_attention_heads": 5}, "hidden_size 32 is not a multiple of num_attention_heads 5"),
        ({"vocab_size": None}, "the field 'vocab_size' is missing"),
        ({"num_hidden_layers": 0}, "num_hidden_layers is 0; it must be at least 1"),
        ({"hidden_size": "32"}, "hidden_size is '32'; it must be a whole number"),
        ({"type_vocab_size": 0}, "type_vocab_size is 0"),
        ({"layer_norm_eps": "tiny"}, "norm_eps is 'tiny'"),
        ({"hidden_act": "mish"}, 'hidden_act "mish" is not one of gelu, gelu_new'),
        ({"hidden_act": ["gelu"]}, "hidden_act"),
        ({"position_embedding_type": "relative_key"}, 'position_embedding_type "relative_key"'),
        ({"is_decoder": True}, "is_decoder is set"),
        ({"num_hidden_layers": 3}, "missing: encoder.layer.2."),
        ({"num_hidden_layers": 1}, "unexpected: encoder.layer.1."),
        ({"hidden_size": 64}, "misshapen: "),
    ],
)
def test_a_config_that_cannot_be_served_is_refused(
    folder: Path, change: dict[str, Any], sentence: str
) -> None:
    """Unknown families, impossible sizes and options that are not computed: one sentence with the file."""
    edit(folder, "config.json", **change)
    message = refusal(folder)
    assert sentence in message
    assert str(folder) in message


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json"])
def test_a_missing_file_is_named(folder: Path, name: str) -> None:
    """A folder without its configuration or tokenizer is not a checkpoint."""
    (folder / name).unlink()
    assert refusal(folder) == f"{folder / name} is missing: fetch the model again, with all its files."


def test_an_empty_folder_is_refused(tmp_path: Path) -> None:
    """Nothing is found where nothing is."""
    assert "config.json is missing" in refusal(tmp_path)


def test_a_tokenizer_larger_than_the_vocabulary_is_refused(folder: Path) -> None:
    """A token that the model does not embed would be an index out of range while serving."""
    edit(folder, "config.json", vocab_size=50)
    rewrite(
        folder,
        lambda t: t.update(
            {"embeddings.word_embeddings.weight": t["embeddings.word_embeddings.weight"][:50].clone()}
        ),
    )
    message = refusal(folder)
    assert "the model has embeddings for only 50" in message
    assert "use the tokenizer and the weights of the same model" in message


@pytest.mark.parametrize(
    ("own", "tokenizer", "limit"), [(40, 512, 40), (None, 30, 30), (900, 512, 64), (None, None, 64)]
)
def test_the_limit_is_never_more_than_the_positions(
    folder: Path, own: int | None, tokenizer: int | None, limit: int
) -> None:
    """sentence-transformers' own limit, else the tokenizer's, and at most the learned positions."""
    write_modules(folder, f"{BEFORE}.Transformer")
    write(folder, "sentence_bert_config.json", {"max_seq_length": own} if own else {})
    edit(folder, "tokenizer_config.json", model_max_length=tokenizer)
    checkpoint = load_checkpoint(folder)
    assert checkpoint.tokenizer.max_length == limit
    assert len(checkpoint.tokenizer.encode(["the " * 999])[0]) == limit


# --------------------------------------------------------------------------------- dense modules


def write_dense(folder: Path, name: str, inputs: int, outputs: int, **options: Any) -> tuple[Tensor, Tensor]:
    """Save a Dense module as sentence-transformers does; returns its weight and bias."""
    settings = {"in_features": inputs, "out_features": outputs, "bias": True}
    write(
        folder,
        f"{name}/config.json",
        {key: value for key, value in {**settings, **options}.items() if value is not None},
    )
    weight, bias = torch.randn(2, outputs, inputs, generator=torch.Generator().manual_seed(outputs))
    tensors = {"linear.weight": weight.contiguous(), "linear.bias": bias[:, 0].contiguous()}
    if options.get("bias") is False:
        del tensors["linear.bias"]
    save_file(tensors, folder / name / "model.safetensors")
    return weight, bias[:, 0]


def write_sentence_model(folder: Path, *kinds: str, **pooling: Any) -> None:
    """Turn a plain folder into one of sentence-transformers."""
    write_modules(folder, *(f"{BEFORE}.{kind}" for kind in ("Transformer", "Pooling", *kinds)))
    write(folder, "1_Pooling/config.json", pooling or {"pooling_mode_mean_tokens": True})


IDENTITY, MODULES = "torch.nn.modules.linear.Identity", "torch.nn.modules.activation"
ACTIVATIONS: list[tuple[str | None, type[nn.Module]]] = [
    (None, nn.Tanh),  # what sentence-transformers takes when none is named
    (IDENTITY, nn.Identity),
    ("torch.nn.Identity", nn.Identity),
    ("torch.nn.SiLU", nn.SiLU),
    *((f"{MODULES}.{name}", getattr(nn, name)) for name in activations.CLASSES if name != "Identity"),
]


@pytest.mark.parametrize(("activation", "module"), ACTIVATIONS)
def test_dense_layers_follow_the_pooling(
    folder: Path, activation: str | None, module: type[nn.Module]
) -> None:
    """activation(Wx + b) of the pooled vector, layer after layer, then unit length."""
    write_sentence_model(folder, "Dense", "Dense", "Normalize")
    w1, b1 = write_dense(folder, "2_Dense", 32, 10, activation_function=activation)
    w2, _ = write_dense(folder, "3_Dense", 10, 7, bias=False, activation_function=IDENTITY)
    backend = TorchBackend(load_checkpoint(folder), device="cpu", dtype="float32")
    assert (backend.info.sentence_size, backend.info.dense, backend.info.normalize) == (7, True, True)
    encoding = load_checkpoint(folder).tokenizer.encode(["the man beats the boy"])[0]
    want = Want(sentence=SentenceWant(layers=(2,), normalize=True), token_layers=(2,))
    output = run(backend, [encoding], [want])[0]
    assert output.tokens is not None
    pooled = output.tokens[0].astype(np.float64).mean(0)
    inner = module()(torch.tensor(pooled) @ w1.double().T + b1.double()).numpy()
    vector = inner @ w2.double().numpy().T
    assert distance(output.sentence, vector / np.linalg.norm(vector)) < 1e-5


@pytest.mark.parametrize("outputs", [32, 7])
@pytest.mark.parametrize("bias", [True, False])
def test_a_dense_layer_may_add_its_input(folder: Path, outputs: int, bias: bool) -> None:
    """The residual joins after the activation: the input itself, or a linear map of it to another size."""
    write_sentence_model(folder, "Dense")
    weight, offset = write_dense(folder, "2_Dense", 32, outputs, bias=bias, use_residual=True)
    onto = torch.randn(outputs, 32, generator=torch.Generator().manual_seed(1))
    if outputs != 32:
        rewrite(folder / "2_Dense", lambda tensors: tensors.update({"residual.weight": onto}))
    (layer,) = load_checkpoint(folder).folder.dense
    x = torch.randn(5, 32, generator=torch.Generator().manual_seed(2))
    expected = torch.tanh(x @ weight.T + (offset if bias else 0)) + (x if outputs == 32 else x @ onto.T)
    assert distance(layer(x.numpy()), expected.numpy()) < 1e-5


@pytest.mark.parametrize("name", activations.CLASSES)
def test_activations_are_pytorch_s_far_from_zero_too(name: str) -> None:
    """From where they saturate to where they could overflow."""
    x = np.linspace(-120, 120, 4801, dtype=np.float32)
    expected = getattr(nn, name)()(torch.tensor(x).double()).numpy()
    actual = activations.CLASSES[name](x)
    assert actual.dtype == np.float32
    assert np.allclose(actual, expected, rtol=1e-6, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16], ids=str)
def test_a_dense_layer_is_read_in_every_precision(folder: Path, dtype: torch.dtype) -> None:
    """Its weights are those that the file has, in float32."""
    write_sentence_model(folder, "Dense")
    weight, bias = write_dense(folder, "2_Dense", 32, 7)
    tensors = {"linear.weight": weight.to(dtype), "linear.bias": bias.to(dtype).contiguous()}
    save_file(tensors, folder / "2_Dense" / "model.safetensors")
    (layer,) = load_checkpoint(folder).folder.dense
    assert isinstance(layer, Dense)
    assert layer.weight.dtype == layer.bias.dtype == np.float32
    assert np.array_equal(layer.weight, weight.to(dtype).float().numpy())
    assert np.array_equal(layer.bias, bias.to(dtype).float().numpy())


def test_a_dense_layer_of_whole_numbers_is_refused(folder: Path) -> None:
    """The sentence names the file and the dtype."""
    write_sentence_model(folder, "Dense")
    write_dense(folder, "2_Dense", 32, 7)
    tensors = {"linear.weight": torch.zeros(7, 32, dtype=torch.int8), "linear.bias": torch.zeros(7)}
    save_file(tensors, folder / "2_Dense" / "model.safetensors")
    assert "has a tensor of dtype 'I8', which is not one of F64, F32, F16, BF16" in refusal(folder)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"activation_function": "mine.Snake"}, "activation_function 'mine.Snake' is not supported"),
        ({"activation_function": "mine.Tanh"}, "activation_function 'mine.Tanh' is not supported"),
        ({"activation_function": f"{MODULES}.Identity"}, "activation.Identity' is not supported"),
        ({"activation_function": 7}, "activation_function 7 is not supported"),
        ({"use_residual": "yes"}, "use_residual is 'yes'; it must be true or false"),
        (
            {"use_residual": True},
            "'residual.weight': (7, 32)}",
        ),
        ({"module_input_name": "token_embeddings"}, "a Dense layer from token_embeddings"),
        ({"in_features": 31}, "in_features is 31 and out_features 7; in_features must be 32"),
        ({"out_features": None}, "out_features None; in_features must be 32, and out_features from 1 to"),
        ({"out_features": 8}, "the weights do not match config.json"),
        ({"bias": False, "in_features": 32}, None),
    ],
)
def test_a_dense_layer_that_is_not_computed_is_refused(
    folder: Path, options: dict[str, Any], sentence: str | None
) -> None:
    """Sizes have to follow from each other, and nothing is skipped; a layer without a bias is fine."""
    write_sentence_model(folder, "Dense")
    write_dense(folder, "2_Dense", 32, 7)
    edit(folder, "2_Dense/config.json", **options)
    if sentence is None:
        rewrite(folder / "2_Dense", lambda tensors: tensors.pop("linear.bias"))
        assert load_checkpoint(folder).folder.dense
    else:
        assert sentence in refusal(folder)
    (folder / "2_Dense" / "model.safetensors").unlink()
    if sentence is None:
        assert "model.safetensors is missing" in refusal(folder)


def test_what_is_served_is_described(folder: Path) -> None:
    """Family, sizes, limit, pooling and prompts, as `/info` and the checks of requests need them."""
    write_sentence_model(
        folder, pooling_mode_cls_token=True, pooling_mode_max_tokens=True, include_prompt=False
    )
    general = {"prompts": {"query": "query: "}, "default_prompt_name": "query"}
    write(folder, "config_sentence_transformers.json", general)
    info = load_checkpoint(folder).folder.describe(backend="torch", device="cpu", dtype="float32")
    assert (info.family, info.layers, info.heads, info.hidden_size) == ("bert", 2, 4, 32)
    assert (info.max_length, info.pooling, info.normalize) == (64, ("cls", "max"), False)
    assert (info.sentence_size, info.dense, info.include_prompt) == (64, False, False)
    assert (info.prompts, info.default_prompt_name) == ({"query": "query: "}, "query")
    assert (info.backend, info.device, info.dtype) == ("torch", "cpu", "float32")
