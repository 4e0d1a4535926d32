"""Encoders of this project's own blocks: saved, loaded, and run by every backend, against plain numpy."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer
from torch import Tensor

from model.checkpoints.checkpoint import load_checkpoint
from model.checkpoints.folder import read_folder
from model.checkpoints.saving import save_encoder
from model.encoder.config import EncoderConfig
from model.encoder.encoder import Encoder
from model.encoder.packing import Packing
from model.encoder.parts import (
    Adapters,
    Convolution,
    Disentangled,
    LayerConfig,
    Mixture,
    RelativeBias,
    Rotary,
)
from model.encoder.plan import Plan
from model.errors import CheckpointError
from model.families.own.literal import read_config, write_config
from model.loading import load_model
from tests.references.checkpoints import write_tokenizer
from tests.references.families import VOCABULARY
from tests.support.families import Array, check_onnx, check_torch
from tests.support.product import encode, naive, observed_maps, random_encoder

SIZES: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "num_layers": 2,
    "num_heads": 2,
    "intermediate_size": 40,
}
PAPER = {"positions": "sinusoidal", "embedding_norm": False, "scale_embeddings": True, "activation": "relu"}
OPTIONS: dict[str, dict[str, Any]] = {
    "as BERT": {"segments": 2, "max_positions": 64},
    "of the paper": PAPER,
    "of the paper, norms first, causal": {**PAPER, "norm": "pre", "causal": True, "longest": 100},
    "rotary, gated, RMS norms": {
        "positions": "none",
        "layers": (LayerConfig(rotary=Rotary.of(16)), LayerConfig(4, Rotary.of(8, 500.0, interleaved=True))),
        "gated": True,
        "activation": "silu",
        "norm": "pre",
        "norm_kind": "rms",
        "num_kv_heads": 1,
        "qkv_bias": False,
        "inner_bias": False,
    },
    "Manhattan": {**PAPER, "similarity": "manhattan", "causal": True},
    "Mahalanobis": {**PAPER, "similarity": "mahalanobis", "norm": "pre", "gated": True, "activation": "relu"},
    "cosine": {"similarity": "cosine", "alibi": True, "positions": "none", "shared": (0, 0)},
    "biases by distance": {
        "positions": "none",
        "relative_bias": RelativeBias(8, 16, per_layer=True, table_rows=12),
        "scale": 0.7,
        "head_dim": 8,
        "qk_norm": "rms",
    },
    "sandwich, narrow embeddings": {
        "norm": "sandwich",
        "embedding_size": 10,
        "qk_norm": "joint",
        "padding_id": 1,
        "position_offset": 2,
        "max_positions": 64,
        "activation": "gelu_tanh",
    },
    "experts": {
        "positions": "sinusoidal",
        "layers": (LayerConfig(), LayerConfig(mixture=Mixture(4, 2))),
        "token_dropout": 4,
        "double_residual": True,
        "norm_bias": False,
        "output_bias": False,
        "outer_bias": False,
    },
}
every_option = pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)


def encoder_of(options: dict[str, Any]) -> Encoder:
    return random_encoder(EncoderConfig(**{**SIZES, **options}))


def tokenizer_in(folder: Path) -> Tokenizer:
    """A small tokenizer, whose ids are below VOCABULARY."""
    write_tokenizer(folder)
    return Tokenizer.from_file(str(folder / "tokenizer.json"))


@dataclass(frozen=True)
class Saved:
    """A saved encoder, and its definition in numpy."""

    folder: Path
    encoder: Encoder

    def run(self, ids: Sequence[int], segments: Sequence[int]) -> tuple[Array, Array]:
        """Hidden states (L + 1, N, C) and attention weights (L, H, N, N) of one input, in float64."""
        states, maps = naive(self.encoder)(ids, [min(s, max(0, self.segments - 1)) for s in segments])
        return np.stack(states), maps

    @property
    def segments(self) -> int:
        return self.encoder.config.segments


def save(place: Path, options: dict[str, Any], **modules: Any) -> Saved:
    encoder = encoder_of(options)
    save_encoder(encoder, tokenizer_in(place / "tokenizer"), place / "saved", **modules)
    return Saved(place / "saved", encoder)


# ------------------------------------------------------------------------------------ save and load


@every_option
def test_what_is_loaded_is_what_was_saved(options: dict[str, Any], tmp_path: Path) -> None:
    """The config is the same, and hidden states and maps are, bit for bit; shared layers are stored once."""
    saved = save(tmp_path, options)
    loaded = load_checkpoint(saved.folder).encoder
    assert loaded.config == saved.encoder.config
    names = [name for name, _ in saved.encoder.named_parameters()]
    assert [name for name, _ in loaded.named_parameters()] == names
    batch = [[5, 4, 99, 7, 1, 0, 7, 8], [6], [9, 9, 3]]
    for before, after in zip(encode(saved.encoder, batch), encode(loaded, batch), strict=True):
        assert np.array_equal(before, after)
    for ids in batch:
        assert np.array_equal(observed_maps(saved.encoder, ids), observed_maps(loaded, ids))


@pytest.mark.in_turns
@every_option
def test_every_option_of_an_own_encoder_is_the_definition_s(options: dict[str, Any], tmp_path: Path) -> None:
    """Hidden states and maps of every layer, with kernels and without, alone and beside others."""
    check_torch(save(tmp_path, options))


GRAPHS = {name: OPTIONS[name] for name in ("of the paper", "Manhattan", "Mahalanobis", "cosine")}


@pytest.mark.parametrize(
    "options",
    [pytest.param(o, marks=[] if n == "Mahalanobis" else [pytest.mark.repeated]) for n, o in GRAPHS.items()],
    ids=GRAPHS,
)
@pytest.mark.thorough
def test_an_own_encoder_runs_as_a_graph(options: dict[str, Any], tmp_path: Path) -> None:
    """Exported, it passes the comparison of the export, and gives the definition's states and maps."""
    check_onnx(save(tmp_path, options), tmp_path / "graph")


def test_the_folder_says_how_sentences_are_pooled(tmp_path: Path) -> None:
    """Pooling and unit length are read from it as they were given; without them it is the mean."""
    saved = save(tmp_path / "a", PAPER, pooling=("weighted_mean", "cls", "mean_sqrt_len"), normalize=True)
    layout = read_folder(saved.folder).layout
    assert layout.pooling == ("weighted_mean", "cls", "mean_sqrt_len")
    assert layout.normalize
    assert read_folder(save(tmp_path / "b", PAPER).folder).layout.pooling == ("mean",)
    normalized = read_folder(save(tmp_path / "c", PAPER, normalize=True).folder).layout
    assert (normalized.pooling, normalized.normalize) == (("mean",), True)


def test_the_longest_input_is_that_of_the_config(tmp_path: Path) -> None:
    """`longest`, or the table of positions, is the limit of the tokenizer; without either it is 512."""
    for options, limit in (({**PAPER, "longest": 100}, 100), ({"max_positions": 64}, 64), (PAPER, 512)):
        saved = save(tmp_path / str(limit), options)
        assert read_folder(saved.folder).tokenizer.max_length == limit


# ----------------------------------------------------------------------------------------- training


@every_option
def test_gradients_are_the_slopes_of_the_definition(options: dict[str, Any]) -> None:
    """Along a random direction of all parameters, a gradient is the numpy encoder's central difference."""
    encoder = encoder_of({**options, "causal": True}).requires_grad_()
    ids = [5, 99, 7, 1, 8]
    weigh = np.random.default_rng(0).normal(size=(len(ids), 32))
    tokens = torch.tensor(ids)
    (last,) = encoder(tokens, torch.zeros_like(tokens), Packing.of([len(ids)]), Plan([2])).values()
    (last * torch.from_numpy(weigh)).sum().backward()
    reference, generator = naive(encoder), np.random.default_rng(1)
    slope, direction = 0.0, {}
    for name, parameter in encoder.named_parameters():
        direction[name] = generator.normal(size=parameter.shape)
        if parameter.grad is not None:
            slope += float((parameter.grad.double().numpy() * direction[name]).sum())
    center, step, ends = dict(reference.weights), 1e-6, []
    for sign in (1, -1):
        reference.weights = {name: center[name] + sign * step * way for name, way in direction.items()}
        ends.append(float((reference(ids)[0][-1] * weigh).sum()))
    assert slope == pytest.approx((ends[0] - ends[1]) / (2 * step), rel=1e-3)


def test_an_encoder_from_a_seed_is_trained_by_a_step(tmp_path: Path) -> None:
    """`requires_grad_()` reaches every parameter, a step changes each, and the result can be saved."""
    config = EncoderConfig(**{**SIZES, **OPTIONS["Mahalanobis"]})
    encoder = Encoder.from_seed(config, seed=1)
    assert not any(parameter.requires_grad for parameter in encoder.parameters())
    encoder.requires_grad_()
    before = {name: parameter.detach().clone() for name, parameter in encoder.named_parameters()}
    optimizer = torch.optim.Adam(encoder.parameters(), lr=0.01)
    tokens = torch.arange(VOCABULARY)
    states = encoder(tokens, torch.zeros_like(tokens), Packing.of([VOCABULARY]), Plan([2]))
    weigh = torch.randn(states[2].shape, generator=torch.Generator().manual_seed(0))
    (states[2] * weigh).sum().backward()
    optimizer.step()
    assert not [name for name, value in encoder.named_parameters() if torch.equal(value, before[name])]
    save_encoder(encoder, tokenizer_in(tmp_path / "tokenizer"), tmp_path / "saved")
    assert not any(value.requires_grad for value in load_checkpoint(tmp_path / "saved").encoder.parameters())


# ----------------------------------------------------------------------------------------- refusals


PARTS: list[dict[str, Any]] = [
    {"layers": (LayerConfig(convolution=Convolution(3, 2, "gelu")),)},
    {"disentangled": Disentangled(9, 6, norm=True)},
    {"adapters": Adapters(("query", "passage"), 4)},
]


def test_disentangled_encoders_are_trained_step_by_step() -> None:
    """What serving computes once is computed anew in training, also after a pass without gradients."""
    encoder = Encoder.from_seed(EncoderConfig(**{**SIZES, **PARTS[1]}), seed=1).requires_grad_()
    tokens = torch.arange(VOCABULARY)

    def states(one: Encoder) -> Tensor:
        return one(tokens, torch.zeros_like(tokens), Packing.of([VOCABULARY]), Plan([2]))[2]

    with torch.no_grad():
        before = states(encoder)
    optimizer = torch.optim.Adam(encoder.parameters(), lr=0.01)
    for _ in range(2):
        optimizer.zero_grad()
        states(encoder).square().sum().backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    assert encoder.distances is not None
    assert encoder.distances.table.grad is not None
    with torch.no_grad():
        fresh = Encoder(encoder.config)
        fresh.load_state_dict(encoder.state_dict())
        assert not torch.equal(states(encoder), before)
        assert torch.equal(states(encoder), states(fresh))


@pytest.mark.parametrize("field", sorted(write_config(EncoderConfig(**SIZES))))
def test_every_field_is_read_as_it_was_written(field: str) -> None:
    """Each field, at each value that an option above gives it, survives JSON; another type is refused."""
    configs = [EncoderConfig(**{**SIZES, **options}) for options in (*OPTIONS.values(), *PARTS)]
    for config in configs:
        written = write_config(config)
        assert getattr(read_config(written), field) == getattr(config, field)
    with pytest.raises(CheckpointError, match=rf"^{field} is \{{'a': 1\}}; it must be |^{field}\.a is not"):
        read_config({**written, field: {"a": 1}})


def changed(**fields: Any) -> dict[str, Any]:
    return {**write_config(EncoderConfig(**SIZES)), **fields}


LAYER = write_config(EncoderConfig(**SIZES))["layers"][0]
REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "an unknown field": ({"dropout": 0.1}, "dropout is not a field that this release of headlight knows"),
    "an unknown activation": ({"activation": "tanh"}, "activation is 'tanh'; it must be one of relu, gelu, "),
    "an unknown similarity": ({"similarity": ["x"]}, "similarity is ['x']; it must be one of dot_product, "),
    "a number as text": ({"num_heads": "2"}, "num_heads is '2'; it must be a whole number from 0 to 4096."),
    "a switch as a number": ({"causal": 1}, "causal is 1; it must be true or false."),
    "a number as a switch": ({"num_layers": True}, "num_layers is True; it must be a whole number"),
    "too many layers": (
        {"num_layers": 2000},
        "num_layers is 2000; it must be a whole number from 0 to 1024.",
    ),
    "no layers": ({"num_layers": 0}, "num_layers is 0; it must be at least 1."),
    "no number": ({"scale": float("nan")}, "scale is nan; it must be a finite number."),
    "a huge number": ({"scale": 10**400}, "it must be a finite number."),
    "no scale": ({"scale": 0}, "scale is 0.0; it must be more than 0"),
    "a window as text": (
        {"layers": [{**LAYER, "window": "3"}]},
        "layers[0].window is '3'; it must be a whole",
    ),
    "layers as an object": ({"layers": {}}, "layers is {}; it must be a list of at most 131072."),
    "a layer as a number": ({"layers": [3]}, "layers[0] is 3; it must be an object."),
    "an unknown field of a layer": ({"layers": [{"rope": 1}]}, "layers[0].rope is not a field that"),
    "a bias without buckets": ({"relative_bias": {"buckets": 2}}, "relative_buckets is 2; it must be even"),
    "a short table": (
        {"relative_bias": {"buckets": 8, "max_distance": 16, "table_rows": 4}},
        "table_rows is 4; it must be 0 or at least the number of buckets, 8.",
    ),
    "nothing to turn": (
        {"layers": [{"rotary": {"frequencies": []}}]},
        "rotary positions need at least one frequency.",
    ),
    "heads that do not fit": ({"num_heads": 5}, "hidden_size 32 is not a multiple of num_heads 5."),
    "a row that is not there": (
        {"padding_id": 70, "max_positions": 64},
        "padding_id is 70, but max_positions is 64: the padding token has no position.",
    ),
}


@pytest.mark.parametrize(("fields", "message"), REFUSED.values(), ids=REFUSED)
def test_a_config_that_cannot_be_built_is_refused(fields: dict[str, Any], message: str) -> None:
    """The field, its value and what it must be are named."""
    with pytest.raises(CheckpointError) as refused:
        read_config(changed(**fields))
    assert message in str(refused.value)


def test_missing_fields_are_named_with_their_file(tmp_path: Path) -> None:
    """Sizes have no default; everything else may be left out."""
    saved = save(tmp_path, PAPER)
    file = saved.folder / "config.json"
    content = json.loads(file.read_text(encoding="utf-8"))
    del content["hidden_size"]
    file.write_text(json.dumps(content), encoding="utf-8")
    with pytest.raises(CheckpointError, match=r"config\.json: the field 'hidden_size' is missing\."):
        load_model(str(saved.folder))
    sizes = {"model_type": "headlight", **SIZES}
    assert read_config(sizes) == EncoderConfig(**SIZES)


def test_weights_of_another_encoder_are_refused(tmp_path: Path) -> None:
    """Every tensor is accounted for: the metric of a Mahalanobis similarity is missing in a dot product."""
    saved = save(tmp_path, PAPER)
    file = saved.folder / "config.json"
    content = json.loads(file.read_text(encoding="utf-8"))
    file.write_text(json.dumps({**content, "similarity": "mahalanobis"}), encoding="utf-8")
    with pytest.raises(CheckpointError, match=r"missing: blocks\.0\.attention\.metric, blocks\.1\.att"):
        load_checkpoint(saved.folder)


def broken(name: str, value: Tensor) -> Encoder:
    encoder = encoder_of(PAPER)
    encoder.get_parameter(name).data = value
    return encoder


UNFIT: dict[str, tuple[Encoder, str]] = {
    "other precisions": (
        encoder_of(PAPER).to(torch.bfloat16),
        "embeddings.token is torch.bfloat16, and only float32 is saved",
    ),
    "infinite weights": (
        broken("blocks.1.attention.qkv.bias", torch.full((96,), torch.inf)),
        "blocks.1.attention.qkv.bias has a NaN or an infinity",
    ),
    "released weights": (
        broken("blocks.0.attention.qkv.weight", torch.empty(0)),
        "blocks.0.attention.qkv.weight is (0,) instead of (96, 32): save the encoder before",
    ),
    "too few tokens": (
        encoder_of({**PAPER, "vocab_size": 50}),
        "the tokenizer has 92 tokens, but the model has embeddings for only 50",
    ),
}


@pytest.mark.parametrize(("encoder", "message"), UNFIT.values(), ids=UNFIT)
def test_what_could_not_be_served_is_not_saved(encoder: Encoder, message: str, tmp_path: Path) -> None:
    """The error says what to change, and no folder remains."""
    with pytest.raises(CheckpointError) as refused:
        save_encoder(encoder, tokenizer_in(tmp_path / "tokenizer"), tmp_path / "saved")
    assert message in str(refused.value)
    assert not (tmp_path / "saved").exists()
    (tmp_path / "empty").mkdir()
    with pytest.raises(CheckpointError):
        save_encoder(encoder, tokenizer_in(tmp_path / "tokenizer"), tmp_path / "empty")
    assert list((tmp_path / "empty").iterdir()) == [], "only what was written is removed"


def test_a_folder_with_files_is_not_overwritten(tmp_path: Path) -> None:
    """A service may have mapped them: saving again needs another folder; the first one is as it was."""
    saved = save(tmp_path, PAPER)
    before = {file.name: file.read_bytes() for file in saved.folder.iterdir()}
    with pytest.raises(CheckpointError, match="is not empty, and a service may be reading it: save to a new"):
        save_encoder(saved.encoder, tokenizer_in(tmp_path / "tokenizer"), saved.folder)
    assert {file.name: file.read_bytes() for file in saved.folder.iterdir()} == before
    with pytest.raises(
        CheckpointError, match="pooling has 'median'; the modes that can be saved are cls, max, mean, "
    ):
        save(tmp_path / "b", PAPER, pooling=("median",))
