"""BERT, layer by layer and map by map, against `transformers` run eagerly in float32."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from model.checkpoints.checkpoint import Checkpoint, load_checkpoint
from model.checkpoints.source import resolve
from model.contract import SentenceWant, Want
from model.pytorch.backend import TorchBackend
from model.tokenization.tokenizer import Side, Text, TextTokenizer, Truncation
from tests.references.checkpoints import MINILM, Reference, write_bert
from tests.references.comparing import distance, relative_distance
from tests.support.product import minilm, run, want_all

LONG = "the man beats the boy " * 30
INPUTS: dict[str, Text] = {
    "normal": "The man beats the boy, hello world.",
    "one token": "a",
    "truncated": LONG,
    "empty": "",
    "whitespace": " \t\n\u3000 ",
    "emoji": "hello 🙂 👩‍👩‍👧 🇩🇪",
    "cjk": "日本語と中文混在 hello",
    "10,000 words": "the boy beats a man " * 2_000,
    "literal sep": "the [SEP] man [CLS] [MASK] boy",
    "lone combining characters": "\u0301 a\u0301\u0302 \u200d",
    "controls": "the\x00man\ufffd \u2028boy\x7f",
    "a word of 300 letters": "x" * 300,
    "pair": ("the man", "beats the boy"),
    "pair with an empty text": ("", "hello"),
    "pair of empty texts": ("", ""),
    "pair, both long": (LONG, LONG),
    "pair, first long": (LONG, "hello world"),
    "pair, second long": ("hello world", LONG),
}


@dataclass(frozen=True)
class Pairing:
    """A checkpoint in the product and in the reference."""

    backend: TorchBackend
    tokenizer: TextTokenizer
    reference: Reference

    @classmethod
    def of(cls, folder: Path) -> "Pairing":
        checkpoint: Checkpoint = load_checkpoint(folder)
        backend = TorchBackend(checkpoint, device="cpu", dtype="float32")
        return cls(backend, checkpoint.tokenizer, Reference.load(folder))

    def check(self, text: Text, side: Side = "right") -> None:
        """The same tokens, the same hidden states and the same maps, in every layer."""
        encoding = self.tokenizer.encode([text], Truncation(side=side))[0]
        expected = self.reference.tokenize(text, self.tokenizer.max_length, side)
        assert encoding.token_ids == expected["input_ids"]
        assert encoding.segment_ids == expected["token_type_ids"]
        assert encoding.offsets == [tuple(offset) for offset in expected["offset_mapping"]]
        hidden, attention = self.reference.run(expected["input_ids"], expected["token_type_ids"])
        assert hidden.shape[0] == self.backend.info.layers + 1
        output = run(self.backend, [encoding], [want_all(self.backend)])[0]
        assert output.tokens is not None
        assert distance(output.attention, attention) <= 1e-5
        for ours, theirs in zip(output.tokens, hidden, strict=True):
            assert relative_distance(ours, theirs) <= 1e-5


@cache
def embedded() -> Pairing:
    folder = resolve(MINILM)
    return Pairing(minilm(), load_checkpoint(folder).tokenizer, Reference.load(folder))


@pytest.mark.in_turns
@pytest.mark.parametrize("name", INPUTS)
def test_the_embedded_model_is_the_reference_s(name: str) -> None:
    """all-MiniLM-L6-v2: the same tokens, hidden states and maps for every kind of input."""
    embedded().check(INPUTS[name])


@pytest.mark.parametrize("name", ["10,000 words", "pair, both long", "pair, first long"])
def test_what_is_cut_at_the_left_is_the_reference_s(name: str) -> None:
    """Cut at the left, the same tokens remain, at the same positions of the text."""
    embedded().check(INPUTS[name], "left")


def test_sentence_vectors_are_those_of_sentence_transformers() -> None:
    """The mean of the last hidden states over the attention mask, of unit length, padded as it pads."""
    pairing, texts = embedded(), [text for text in INPUTS.values() if isinstance(text, str)]
    encodings = pairing.tokenizer.encode(texts)
    info = pairing.backend.info
    want = Want(SentenceWant(info.pooling, layers=(info.layers,), normalize=info.normalize))
    outputs = run(pairing.backend, encodings, [want] * len(texts))
    pairing.reference.tokenizer.truncation_side = "right"
    tokens = pairing.reference.tokenizer(
        texts, padding=True, truncation=True, max_length=256, return_tensors="pt"
    )
    with torch.inference_mode():
        states = pairing.reference.model(**tokens).last_hidden_state.double().numpy()
    mask = tokens["attention_mask"].numpy()[..., None]
    mean = (states * mask).sum(1) / np.clip(mask.sum(1), 1e-9, None)
    expected = mean / np.linalg.norm(mean, axis=1, keepdims=True)
    assert len(set(mask.sum(1).ravel().tolist())) > 5  # padding there was
    assert distance([output.sentence for output in outputs], expected) <= 1e-5
    assert distance(np.linalg.norm(expected, axis=1), np.ones(len(texts))) < 1e-6


# ------------------------------------------------------------------- every option, at random weights

OPTIONS: dict[str, dict[str, Any]] = {
    "gelu": {"hidden_act": "gelu"},
    "gelu_new": {"hidden_act": "gelu_new", "num_hidden_layers": 1},
    "gelu_pytorch_tanh": {"hidden_act": "gelu_pytorch_tanh"},
    "relu": {"hidden_act": "relu", "num_attention_heads": 1},
    "silu": {"hidden_act": "silu", "num_hidden_layers": 4},
    "swish": {"hidden_act": "swish", "num_attention_heads": 32},
    "three segments": {"type_vocab_size": 3, "hidden_size": 24, "num_attention_heads": 3},
    "wide": {"hidden_size": 96, "num_attention_heads": 2, "intermediate_size": 20},
    "coarse norms": {"layer_norm_eps": 0.1, "num_hidden_layers": 3},
    "few positions": {"max_position_embeddings": 20},
    "heads of 16, gelu_tanh": {"hidden_size": 64, "hidden_act": "gelu_new"},
    "heads of 16, silu": {"hidden_size": 64, "hidden_act": "silu", "num_hidden_layers": 3},
    "heads of 32, relu": {"hidden_size": 64, "hidden_act": "relu", "num_attention_heads": 2},
}
SAMPLE = ("normal", "truncated", "empty", "pair, both long", "literal sep", "emoji")


@pytest.mark.in_turns
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_every_option_of_bert_is_the_reference_s(options: dict[str, Any], tmp_path: Path) -> None:
    """Layers, heads, sizes, activations, segments, epsilons and lengths, at weights that all count."""
    write_bert(tmp_path, **options)
    pairing = Pairing.of(tmp_path)
    for name in SAMPLE:
        pairing.check(INPUTS[name], "left" if name == "truncated" else "right")


def test_a_single_segment_serves_single_texts(tmp_path: Path) -> None:
    """With type_vocab_size 1 the one segment is still added to every token."""
    write_bert(tmp_path, type_vocab_size=1)
    Pairing.of(tmp_path).check(INPUTS["normal"])


def test_a_single_segment_serves_pairs_as_one(tmp_path: Path) -> None:
    """With type_vocab_size 1 both texts of a pair are of that segment; the answer still tells them apart."""
    write_bert(tmp_path, type_vocab_size=1)
    pairing = Pairing.of(tmp_path)
    encoding = pairing.tokenizer.encode([INPUTS["pair"]])[0]
    assert set(encoding.segment_ids) == {0, 1}
    hidden, attention = pairing.reference.run(encoding.token_ids, [0] * len(encoding))
    output = run(pairing.backend, [encoding], [want_all(pairing.backend)])[0]
    assert output.tokens is not None
    assert distance(output.attention, attention) <= 1e-5
    assert relative_distance(output.tokens, hidden) <= 1e-5


# ------------------------------------------------------------------------- every way of storing it


def rename(folder: Path, change: Callable[[str], str]) -> None:
    """Rename the tensors of a folder."""
    tensors = load_file(folder / "model.safetensors")
    renamed = {change(name): tensor for name, tensor in tensors.items()}
    assert renamed.keys() != tensors.keys()
    save_file(renamed, folder / "model.safetensors", metadata={"format": "pt"})


def old_norm(name: str) -> str:
    """LayerNorm's parts as TensorFlow named them."""
    return name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta")


@pytest.mark.parametrize("architecture", ["BertModel", "BertForMaskedLM", "BertForPreTraining"])
def test_encoders_are_found_under_their_heads(architecture: str, tmp_path: Path) -> None:
    """Saved alone or as "bert." under the heads of pre-training, it is the same encoder."""
    write_bert(tmp_path, architecture=architecture)
    prefixed = any(name.startswith("bert.") for name in load_file(tmp_path / "model.safetensors"))
    assert prefixed == (architecture != "BertModel")
    Pairing.of(tmp_path).check(INPUTS["pair"])


def test_layer_norms_may_have_their_old_names(tmp_path: Path) -> None:
    """gamma and beta are weight and bias, in a checkpoint of the first years."""
    write_bert(tmp_path)
    reference = Reference.load(tmp_path)
    rename(tmp_path, old_norm)
    checkpoint = load_checkpoint(tmp_path)
    backend = TorchBackend(checkpoint, device="cpu", dtype="float32")
    Pairing(backend, checkpoint.tokenizer, reference).check(INPUTS["normal"])


def test_weights_may_lie_in_several_files(tmp_path: Path) -> None:
    """Shards are put together as their index says."""
    model = write_bert(tmp_path, num_hidden_layers=3)
    (tmp_path / "model.safetensors").unlink()
    model.save_pretrained(tmp_path, max_shard_size="20KB")
    assert len(list(tmp_path.glob("model-*.safetensors"))) > 2
    Pairing.of(tmp_path).check(INPUTS["normal"])


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_weights_may_be_stored_in_half_precision(dtype: str, tmp_path: Path) -> None:
    """Half-precision weights are widened to float32, as the reference does when asked for float32."""
    model = write_bert(tmp_path)
    model.to(getattr(torch, dtype)).save_pretrained(tmp_path)
    stored = load_file(tmp_path / "model.safetensors")["embeddings.word_embeddings.weight"]
    assert stored.dtype == getattr(torch, dtype)
    Pairing.of(tmp_path).check(INPUTS["normal"])
