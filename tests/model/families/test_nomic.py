"""Nomic's BERT, against `transformers`, and in the form of Nomic's own code against its definition."""

from pathlib import Path
from typing import Any

import pytest
from safetensors.numpy import load_file

from model.encoder.config import EncoderConfig
from model.encoder.parts import LayerConfig, Mixture, Rotary
from model.errors import CheckpointError
from model.families.nomic import read_config
from tests.references.families import VOCABULARY, change_config, write_model
from tests.references.originals import Original, random_tensors, write_original
from tests.support.families import SIZES, check_onnx, check_torch

OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "one head": {"hidden_size": 30, "num_attention_heads": 1, "intermediate_size": 7},
    "one layer": {"num_hidden_layers": 1},
    "wide heads": {"head_dim": 24},
    "gelu": {"hidden_act": "gelu"},
    "one segment": {"type_vocab_size": 1},
    "coarse norms": {"layer_norm_eps": 0.1},
    "another base": {"rope_parameters": {"rope_type": "default", "rope_theta": 250000.0}},
    "linear scaling": {"rope_parameters": {"rope_type": "linear", "rope_theta": 1000.0, "factor": 4.0}},
}


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_every_option_of_nomic_bert_is_the_reference_s(options: dict[str, Any], tmp_path: Path) -> None:
    """Hidden states and maps of every layer, with kernels and without, alone and beside others."""
    check_torch(write_model(tmp_path, "NomicBert", **{**SIZES, **options}))


@pytest.mark.repeated
def test_nomic_bert_runs_as_a_graph(tmp_path: Path) -> None:
    """Exported, it passes the comparison of the export, and gives the reference's states and maps."""
    written = write_model(tmp_path / "checkpoint", "NomicBert", **{**SIZES, "num_hidden_layers": 2})
    check_onnx(written, tmp_path / "graph")


def test_the_names_of_transformers_are_read_too(tmp_path: Path) -> None:
    """It saves the names of Nomic's code, unless asked for its own."""
    written = write_model(tmp_path, "NomicBert", **SIZES)
    assert "encoder.layers.0.attn.Wqkv.weight" in load_file(tmp_path / "model.safetensors")
    written.model.save_pretrained(tmp_path, save_original_format=False)
    assert "layers.0.self_attn.q_proj.weight" in load_file(tmp_path / "model.safetensors")
    check_torch(written)


@pytest.mark.parametrize("head", ["ForMaskedLM", "ForSequenceClassification"])
def test_the_encoder_below_a_head_is_served(head: str, tmp_path: Path) -> None:
    """Its tensors have a prefix; the head is left out."""
    check_torch(write_model(tmp_path, "NomicBert", architecture=f"NomicBert{head}", **SIZES))


def test_the_base_is_1000_unless_the_config_says_otherwise(tmp_path: Path) -> None:
    """As in transformers; in Nomic's form it is 10 000."""
    written = write_model(tmp_path, "NomicBert", **SIZES)
    change_config(tmp_path, rope_parameters=None)
    check_torch(written)


# --------------------------------------------------------------------------- the form of Nomic's own code

OWN: dict[str, Any] = {
    "model_type": "nomic_bert",
    "architectures": ["NomicBertModel"],
    "vocab_size": VOCABULARY,
    "n_embd": 48,
    "n_head": 3,
    "n_inner": 256,
    "n_layer": 2,
    "n_positions": 64,
    "activation_function": "swiglu",
    "rotary_emb_fraction": 1.0,
    "rotary_emb_base": 1000,
    "qkv_proj_bias": False,
    "mlp_fc1_bias": False,
    "mlp_fc2_bias": False,
    "layer_norm_epsilon": 1e-12,
    "type_vocab_size": 2,
    "rotary_scaling_factor": None,
}
"""The options of nomic-embed-text-v1.5, small."""

BIASES = {"qkv_proj_bias": True, "mlp_fc1_bias": True, "mlp_fc2_bias": True}

MIXTURE: dict[str, Any] = {
    "num_experts": 8,
    "moe_top_k": 2,
    "moe_every_n_layers": 2,
    "activation_function": "gelu",
    "n_inner": 40,
    **BIASES,
}
"""The options of nomic-embed-text-v2-moe."""

OWN_OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "a mixture of experts": MIXTURE,
    "one of three experts": {**MIXTURE, "num_experts": 3, "moe_top_k": 1},
    "all of two experts in every third layer": {
        **MIXTURE,
        "num_experts": 2,
        "moe_every_n_layers": 3,
        "n_layer": 5,
    },
    "experts without a layer": {**MIXTURE, "n_layer": 1},
    "no experts": {**MIXTURE, "num_experts": 0},
    "one head": {"n_embd": 30, "n_head": 1, "n_layer": 1},
    "interleaved": {"rotary_emb_interleaved": True},
    "partial": {"rotary_emb_fraction": 0.5},
    "partial and interleaved": {"rotary_emb_fraction": 0.375, "rotary_emb_interleaved": True},
    "learned positions": {"rotary_emb_fraction": 0.0},
    "as in BERT": {"rotary_emb_fraction": 0.0, "activation_function": "gelu", **BIASES},
    "as in BERT, without biases": {"rotary_emb_fraction": 0.0, "activation_function": "gelu"},
    "another base": {"rotary_emb_base": 250000.0},
    "geglu": {"activation_function": "geglu"},
    "gelu": {"activation_function": "gelu", "n_inner": 40},
    "biases": BIASES,
    "gelu and biases": {"activation_function": "gelu", "n_inner": 40, **BIASES},
    "biases of attention": {"qkv_proj_bias": True},
    "biases of the first product": {"mlp_fc1_bias": True},
    "biases of the second product": {"mlp_fc2_bias": True},
    "no segments": {"type_vocab_size": 0},
    "one segment": {"type_vocab_size": 1},
    "coarse norms": {"layer_norm_epsilon": 0.1},
    "a padded vocabulary": {"pad_vocab_size_multiple": 64},
    "an inner size that is rounded up": {"n_inner": 100},
    "no inner size": {"n_inner": None},
    "no inner size and no gate": {"n_inner": None, "activation_function": "gelu"},
}


def write_own(folder: Path, **options: Any) -> Original:
    """A checkpoint as Nomic's code writes it, and its encoder in numpy."""
    config = {**OWN, **options}
    encoder = encoder_of(config)
    bias = {"attn": config["qkv_proj_bias"], "fc1": config["mlp_fc1_bias"], "fc2": config["mlp_fc2_bias"]}
    size, inner = encoder.hidden_size, encoder.intermediate_size
    shapes: dict[str, tuple[int, ...]] = {"embeddings.word_embeddings.weight": (encoder.vocab_size, size)}
    names = {"embeddings.token": ["embeddings.word_embeddings.weight"]}

    def add(ours: str, *theirs: str, rows: int, columns: int = 0, biased: bool = True) -> None:
        for kind in ("weight", "bias")[: 1 + biased]:
            names[f"{ours}.{kind}"] = [f"{name}.{kind}" for name in theirs]
            width = (columns,) if columns and kind == "weight" else ()
            shapes.update({f"{name}.{kind}": (rows, *width) for name in theirs})

    if encoder.segments:
        shapes["embeddings.token_type_embeddings.weight"] = (encoder.segments, size)
        names["embeddings.segment"] = ["embeddings.token_type_embeddings.weight"]
    if encoder.positions == "learned":
        shapes["embeddings.position_embeddings.weight"] = (encoder.max_positions, size)
        names["embeddings.position"] = ["embeddings.position_embeddings.weight"]
    add("embeddings.norm", "emb_ln", rows=size)
    for number in range(encoder.num_layers):
        ours, theirs = f"blocks.{number}.", f"encoder.layers.{number}."
        first = [f"{theirs}mlp.{name}" for name in (("fc12", "fc11") if encoder.gated else ("fc1",))]
        qkv, output = f"{theirs}attn.Wqkv", f"{theirs}attn.out_proj"
        add(f"{ours}attention.qkv", qkv, rows=3 * size, columns=size, biased=bias["attn"])
        add(f"{ours}attention.output", output, rows=size, columns=size, biased=bias["attn"])
        add(f"{ours}attention_norm", f"{theirs}norm1", rows=size)
        add(f"{ours}feed_forward_norm", f"{theirs}norm2", rows=size)
        if mixture := encoder.layer(number).mixture:
            add(
                f"{ours}feed_forward.router",
                f"{theirs}mlp.router.layer",
                rows=mixture.experts,
                columns=size,
                biased=False,
            )
            for own, name in (("first", "mlp.w1"), ("second", "mlp.w2"), ("bias", "bias")):
                names[f"{ours}feed_forward.{own}"] = [f"{theirs}mlp.experts.{name}"]
                rows = (mixture.experts * inner, size)
                shapes[f"{theirs}mlp.experts.{name}"] = (size,) if own == "bias" else rows
            continue
        add(f"{ours}feed_forward.inner", *first, rows=inner, columns=size, biased=bias["fc1"])
        add(f"{ours}feed_forward.outer", f"{theirs}mlp.fc2", rows=size, columns=inner, biased=bias["fc2"])
    return write_original(folder, config, random_tensors(shapes), encoder, names)


def encoder_of(config: dict[str, Any]) -> EncoderConfig:
    """What Nomic's code makes of a config."""
    size, gated = config["n_embd"], config["activation_function"] != "gelu"
    inner = config["n_inner"] or (8 * size // 3 if gated else 4 * size)
    while gated and inner % 256:
        inner += 1
    vocabulary = config["vocab_size"]
    while vocabulary % config.get("pad_vocab_size_multiple", 1):
        vocabulary += 1
    turned = int(size // config["n_head"] * config["rotary_emb_fraction"])
    frequencies = tuple(float(config["rotary_emb_base"]) ** -(i / turned) for i in range(0, turned, 2))
    rotary = Rotary(frequencies, config.get("rotary_emb_interleaved", False)) if turned else None
    mixed, step = config.get("num_experts", 0), config.get("moe_every_n_layers", 1)
    mixture = Mixture(mixed, config["moe_top_k"]) if mixed else None
    return EncoderConfig(
        vocab_size=vocabulary,
        hidden_size=size,
        num_layers=config["n_layer"],
        num_heads=config["n_head"],
        intermediate_size=inner,
        positions="none" if turned else "learned",
        max_positions=config["n_positions"],
        segments=config["type_vocab_size"],
        norm_eps=config["layer_norm_epsilon"],
        activation="silu" if config["activation_function"] == "swiglu" else "gelu",
        gated=gated,
        qkv_bias=config["qkv_proj_bias"],
        output_bias=config["qkv_proj_bias"],
        inner_bias=config["mlp_fc1_bias"],
        outer_bias=config["mlp_fc2_bias"],
        layers=tuple(
            LayerConfig(rotary=rotary, mixture=mixture if mixed and number % step == 1 else None)
            for number in range(config["n_layer"])
        ),
    )


@pytest.mark.in_turns
@pytest.mark.parametrize("options", OWN_OPTIONS.values(), ids=OWN_OPTIONS)
def test_every_option_of_nomic_s_own_form_follows_its_definition(
    options: dict[str, Any], tmp_path: Path
) -> None:
    """Hidden states and maps of every layer, with kernels and without, alone and beside others."""
    check_torch(write_own(tmp_path, **options))


@pytest.mark.repeated
def test_nomic_s_own_form_runs_as_a_graph(tmp_path: Path) -> None:
    """With biases, and a part of each head turned in neighbouring pairs, as no form of transformers has."""
    options = {**BIASES, "rotary_emb_fraction": 0.5, "rotary_emb_interleaved": True}
    check_onnx(write_own(tmp_path / "checkpoint", **options), tmp_path / "graph")


@pytest.mark.thorough
def test_a_mixture_of_experts_runs_as_a_graph(tmp_path: Path) -> None:
    """Its shapes do not depend on which experts the router chooses."""
    check_onnx(write_own(tmp_path / "checkpoint", **MIXTURE), tmp_path / "graph")


def test_the_same_checkpoint_may_have_either_config(tmp_path: Path) -> None:
    """The newer files of nomic-embed-text-v1.5 have the fields of both forms."""
    written = write_model(tmp_path, "NomicBert", **{**SIZES, "intermediate_size": 256})
    both = {**OWN, "n_layer": 3}
    change_config(tmp_path, **both)
    check_torch(written)


@pytest.mark.parametrize(
    ("change", "limit"),
    [
        ({}, 64),
        ({"n_positions": 8192}, 8192),
        ({"n_positions": 0}, 2048),
        ({"n_positions": 8192, "rotary_scaling_factor": 2}, 2048),
        ({"n_positions": 8192, "rotary_scaling_factor": 2, "max_trained_positions": 512}, 512),
        ({"n_positions": 256, "rotary_scaling_factor": 2}, 256),
        ({"n_positions": 4096, "rotary_emb_fraction": 0.0, "rotary_scaling_factor": 2}, 4096),
    ],
)
def test_texts_end_where_the_base_would_grow_with_their_length(change: dict[str, Any], limit: int) -> None:
    """Up to the length of training, `rotary_scaling_factor` changes nothing."""
    assert read_config({**OWN, **change}).position_limit == limit


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (
            {**MIXTURE, "activation_function": "swiglu"},
            "num_experts is set: the activation_function of experts",
        ),
        ({**MIXTURE, "moe_top_k": 9}, "each token uses 9 experts, but there are only 8"),
        ({**MIXTURE, "moe_normalize_expert_weights": 1}, "moe_normalize_expert_weights is set"),
        ({**MIXTURE, "num_shared_experts": 1}, "num_shared_experts is set"),
        ({**MIXTURE, "expert_choice_router": True}, "expert_choice_router is set"),
        ({"prenorm": True}, "prenorm is set"),
        ({"parallel_block": True}, "parallel_block is set"),
        ({"use_rms_norm": True}, "use_rms_norm is set"),
        ({"causal": True}, "causal is set"),
        ({"rotary_head_dim": True}, "rotary_head_dim is set"),
        ({"rotary_emb_scale_base": 512}, "rotary_emb_scale_base is set"),
        ({"num_heads_kv": 1}, "num_heads_kv is 1; it must equal n_head"),
        ({"activation_function": "glu"}, 'activation_function "glu" is not one of gelu, geglu, swiglu'),
        ({"activation_function": "gelu_new"}, 'activation_function "gelu_new" is not one of'),
        ({"activation_function": None}, "activation_function"),
        (
            {"rotary_emb_fraction": 0.3},
            "rotary_emb_fraction is 0.3, which rotates 4.8 of the 16 components of a head",
        ),
        ({"rotary_emb_fraction": -1}, "rotary_emb_fraction is -1; it must be a number above 0"),
        ({"rotary_emb_fraction": 2.0}, "rotary positions rotate 32 components, but a head has only 16"),
        ({"rotary_emb_base": 0}, "rotary_emb_base is 0; it must be a number above 0"),
        ({"n_head": 5}, "n_embd 48 is not a multiple of n_head 5"),
        ({"n_inner": 0}, "n_inner is 0; it must be at least 1"),
        ({"pad_vocab_size_multiple": 0}, "pad_vocab_size_multiple is 0; it must be at least 1"),
        ({"vocab_size": "100"}, "vocab_size is"),
        ({"prenorm": "no"}, "prenorm is"),
    ],
)
def test_an_option_that_is_not_supported_is_named(change: dict[str, Any], sentence: str) -> None:
    """Nothing is computed in another way than the checkpoint's own code does."""
    with pytest.raises(CheckpointError) as refusal:
        read_config({**OWN, **change})
    assert sentence in str(refusal.value)
