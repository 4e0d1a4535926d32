"""Independent references: `transformers` run eagerly, and an encoder written out in plain numpy.

Nothing in here may call the product to compute an expected number.
"""

import os

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["ORT_DISABLE_TELEMETRY"] = "1"

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from model.checkpoints.checkpoint import load_checkpoint
from model.checkpoints.source import resolve
from model.contract import STATISTICS, AttentionWant, Backend, Batch, Encoding, Output, Want
from model.encoder.config import EncoderConfig
from model.encoder.encoder import Encoder
from model.encoder.packing import Packing
from model.inspection.blocks import Layer
from model.pytorch.backend import TorchBackend

Array = NDArray[np.float64]
Ids = Sequence[int]

MINILM = "all-MiniLM-L6-v2"


# ---------------------------------------------------------------------------------------- comparing


def distance(a: Any, b: Any) -> float:
    """The largest absolute difference; infinite where the shapes differ or a number is not finite."""
    left, right = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    if left.shape != right.shape or not (np.isfinite(left).all() and np.isfinite(right).all()):
        return math.inf
    return float(np.abs(left - right).max(initial=0.0))


def relative_distance(a: Any, b: Any) -> float:
    """`distance`, in units of max(1, ‖b‖∞): what "within ε·max(1, ‖h‖∞)" compares with ε."""
    return distance(a, b) / max(1.0, float(np.abs(np.asarray(b, dtype=np.float64)).max(initial=0.0)))


def assert_summary(got: Mapping[str, NDArray[Any]], expected: Mapping[str, NDArray[Any]]) -> None:
    """Check the statistics of heads as they are handed on: all of them, in order, float32 and contiguous."""
    assert tuple(got) == STATISTICS
    for name, values in got.items():
        assert values.dtype == np.float32
        assert values.flags.c_contiguous
        assert relative_distance(values, expected[name]) <= 1e-5, name


def near_ties(p: NDArray[Any], within: float = 1e-5) -> Array:
    """The share of rows whose two largest numbers rounding may exchange: maps (…, N, M) -> (…)."""
    if not p.shape[-2] or p.shape[-1] < 2:
        return np.zeros(p.shape[:-2])
    second, first = np.moveaxis(np.sort(np.asarray(p, np.float64), axis=-1)[..., -2:], -1, 0)
    return np.asarray((first - second < within).mean(-1))


# ------------------------------------------------------------------------------- plain mathematics


def softmax(scores: Array) -> Array:
    """Softmax over the last axis."""
    exponentials = np.exp(scores - scores.max(-1, keepdims=True))
    return exponentials / exponentials.sum(-1, keepdims=True)


def activation(x: Array, kind: str) -> Array:
    """The activations from their formulas, number by number."""
    formulas = {
        "relu": lambda z: max(z, 0.0),
        "gelu": lambda z: z * 0.5 * (1.0 + math.erf(z / math.sqrt(2.0))),
        "gelu_tanh": lambda z: 0.5 * z * (1.0 + math.tanh(math.sqrt(2.0 / math.pi) * (z + 0.044715 * z**3))),
        "silu": lambda z: z / (1.0 + math.exp(-z)),
    }
    return np.vectorize(formulas[kind], otypes=[np.float64])(x) if x.size else x


def similarity(q: Array, k: Array, kind: str, factor: Array | None = None) -> Array:
    """Compare each query (N, D) with each key (M, D), pair by pair, by the definition."""
    scores = np.empty((len(q), len(k)))
    for i, j in np.ndindex(scores.shape):
        difference = q[i] - k[j]
        match kind:
            case "dot_product":
                scores[i, j] = q[i] @ k[j] / math.sqrt(q.shape[1])
            case "cosine":
                scores[i, j] = q[i] @ k[j] / (np.linalg.norm(q[i]) * np.linalg.norm(k[j]))
            case "manhattan":
                scores[i, j] = -np.abs(difference).sum()
            case "mahalanobis":
                assert factor is not None
                scores[i, j] = -math.sqrt(difference @ (factor @ factor.T) @ difference)
    return scores


def sinusoid(position: int, size: int) -> list[float]:
    """One position code of Vaswani et al. 2017, component by component."""
    code = []
    for pair in range(size // 2):
        angle = position / 10_000 ** (2 * pair / size)
        code += [math.sin(angle), math.cos(angle)]
    return code


def turn(x: Array, base: float) -> Array:
    """Rotary positions (N, D) as complex numbers: component i and i + D/2 are one number, turned."""
    half = x.shape[1] // 2
    angles = np.outer(np.arange(len(x)), base ** (-np.arange(half) / half))
    turned = (x[:, :half] + 1j * x[:, half:]) * np.exp(1j * angles)
    return np.concatenate((turned.real, turned.imag), axis=1)


def bucket(distance: int, buckets: int, max_distance: int) -> int:
    """The bucket of one distance (key minus query), Raffel et al. 2020, in whole and exact steps."""
    half = buckets // 2
    exact, steps = half // 2, abs(distance)
    offset = half if distance > 0 else 0
    if steps < exact:
        return offset + steps
    grown = math.log(steps / exact) / math.log(max_distance / exact) * (half - exact)
    return offset + min(half - 1, exact + int(grown + 1e-9))


class NaiveEncoder:
    """An encoder over one sequence in float64 numpy, head by head, with the weights of another."""

    def __init__(self, encoder: Encoder) -> None:
        self.config = encoder.config
        self.weights = {name: value.detach().double().numpy() for name, value in encoder.named_parameters()}

    def __call__(self, ids: Ids, segments: Ids | None = None) -> tuple[list[Array], Array]:
        """Hidden states, L + 1 of (N, C), and attention weights (L, H, N, N)."""
        config, x = self.config, self._embed(ids, segments or [0] * len(ids))
        states, maps = [x], []
        for layer in range(config.num_layers):
            name, pre = f"blocks.{layer}.", config.norm == "pre"
            mixed, weights = self._attend(name, self._norm(name + "attention_norm", x) if pre else x)
            x = x + mixed
            x = x if pre else self._norm(name + "attention_norm", x)
            inner = self._feed_forward(name, self._norm(name + "feed_forward_norm", x) if pre else x)
            x = x + inner
            x = x if pre else self._norm(name + "feed_forward_norm", x)
            states.append(x)
            maps.append(weights)
        if config.norm == "pre":
            states[-1] = self._norm("final_norm", x)
        return states, np.stack(maps)

    def _embed(self, ids: Ids, segments: Ids) -> Array:
        config, w = self.config, self.weights
        scale = math.sqrt(config.hidden_size) if config.scale_embeddings else 1.0
        rows = []
        for position, (token, segment) in enumerate(zip(ids, segments, strict=True)):
            row = w["embeddings.token"][token] * scale
            if config.segments:
                row = row + w["embeddings.segment"][segment]
            if config.positions == "learned":
                row = row + w["embeddings.position"][position]
            if config.positions == "sinusoidal":
                row = row + np.array(sinusoid(position, config.hidden_size))
            rows.append(row)
        x = np.stack(rows)
        return self._norm("embeddings.norm", x) if config.embedding_norm else x

    def _attend(self, name: str, x: Array) -> tuple[Array, Array]:
        config, size, w = self.config, self.config.head_size, self.weights
        q, k, v = np.split(self._linear(name + "attention.qkv", x), 3, axis=1)
        outputs, maps = [], []
        for head in range(config.num_heads):
            part = slice(head * size, (head + 1) * size)
            qh, kh = q[:, part], k[:, part]
            if config.positions == "rotary":
                qh, kh = turn(qh, config.rotary_base), turn(kh, config.rotary_base)
            metric = w.get(name + "attention.metric")
            scores = similarity(qh, kh, config.similarity, None if metric is None else metric[head])
            for i, j in np.ndindex(scores.shape):
                if config.positions == "relative_bias":
                    place = bucket(j - i, config.relative_buckets, config.relative_max_distance)
                    scores[i, j] += w["relative_bias"][place, head]
                hidden = config.visibility == "causal" and j > i
                if hidden or (config.visibility == "windowed" and abs(i - j) > config.window):
                    scores[i, j] = -math.inf
            maps.append(softmax(scores))
            outputs.append(maps[-1] @ v[:, part])
        return self._linear(name + "attention.output", np.concatenate(outputs, axis=1)), np.stack(maps)

    def _feed_forward(self, name: str, x: Array) -> Array:
        inner = self._linear(name + "feed_forward.inner", x)
        if self.config.gated:
            gate, value = np.split(inner, 2, axis=1)
            inner = activation(gate, self.config.activation) * value
        else:
            inner = activation(inner, self.config.activation)
        return self._linear(name + "feed_forward.outer", inner)

    def _linear(self, name: str, x: Array) -> Array:
        return x @ self.weights[name + ".weight"].T + self.weights[name + ".bias"]

    def _norm(self, name: str, x: Array) -> Array:
        centred = x - x.mean(-1, keepdims=True)
        unit = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + self.config.norm_eps)
        return unit * self.weights[name + ".weight"] + self.weights[name + ".bias"]


# ------------------------------------------------------------------------------ running the product


def random_encoder(config: EncoderConfig, seed: int = 0) -> Encoder:
    """An encoder in which every parameter counts: no zero bias, no norm that is the identity."""
    encoder, generator = Encoder(config), torch.Generator().manual_seed(seed)
    for name, parameter in encoder.named_parameters():
        matrix = parameter.dim() > 1 and not name.startswith("embeddings.") and name != "relative_bias"
        deviation = 1.5 / math.sqrt(parameter.shape[-1]) if matrix else 0.5
        parameter.data.normal_(0.0, deviation, generator=generator)
        if "norm" in name and name.endswith("weight"):
            parameter.data.add_(1.0)
    return encoder.requires_grad_(requires_grad=False).eval()


def encode(encoder: Encoder, sequences: Sequence[Ids], hidden: Sequence[int] | None = None) -> list[Array]:
    """Run sequences as one packed batch; each comes back as (states, N, C), all states by default."""
    layers = range(encoder.config.num_layers + 1) if hidden is None else hidden
    packing = Packing.of(len(ids) for ids in sequences)
    tokens = torch.tensor([token for ids in sequences for token in ids])
    states = encoder(tokens, torch.zeros_like(tokens), packing, hidden=layers)
    stacked = torch.stack([states[layer] for layer in layers]).numpy()
    return [
        stacked[:, start : start + len(ids)] for start, ids in zip(packing.starts, sequences, strict=False)
    ]


def probe_maps(encoder: Encoder, ids: Ids) -> Array:
    """The attention weights (L, H, N, N) of one sequence, as the product computes them on request."""
    maps: dict[int, Array] = {}
    layers = range(encoder.config.num_layers)

    def probe(layer: int, attention: Any, q: Any, k: Any, v: Any, bias: Any) -> None:
        whole = slice(0, len(ids))
        block = Layer(attention, q[None], k[None], v[None], bias)
        maps[layer] = block.weights("probability", slice(0, 1), slice(0, q.shape[1]), whole)[0].numpy()

    tokens = torch.tensor(list(ids))
    encoder(
        tokens, torch.zeros_like(tokens), Packing.of([len(ids)]), hidden=(), probe=probe, probe_layers=layers
    )
    return np.stack([maps[layer] for layer in layers])


def want_all(backend: Backend) -> Want:
    """Every hidden state and every map."""
    layers, heads = backend.info.layers, backend.info.heads
    return Want(
        token_layers=tuple(range(layers + 1)),
        attention=AttentionWant(tuple(range(layers)), tuple(range(heads))),
    )


def run(backend: Backend, encodings: Sequence[Encoding], wants: Sequence[Want]) -> list[Output]:
    """Run encodings as one batch."""
    return backend.run(Batch.pack(encodings, wants))


@cache
def minilm() -> TorchBackend:
    """The embedded model in float32, loaded once."""
    return TorchBackend(load_checkpoint(resolve(MINILM)), device="cpu", dtype="float32")


# --------------------------------------------------------------------------------- `transformers`


@dataclass(frozen=True)
class Reference:
    """A checkpoint folder as `transformers` reads and runs it, eagerly and in float32."""

    tokenizer: Any
    model: Any

    @classmethod
    def load(cls, folder: Path) -> "Reference":
        """Load a folder with `transformers`."""
        from transformers import AutoModel, AutoTokenizer
        from transformers.utils import logging

        logging.disable_progress_bar()  # type: ignore[no-untyped-call, unused-ignore]
        logging.set_verbosity_error()  # type: ignore[no-untyped-call, unused-ignore]
        model = AutoModel.from_pretrained(folder, attn_implementation="eager", dtype=torch.float32)
        return cls(AutoTokenizer.from_pretrained(folder), model.eval())

    def tokenize(self, text: str | tuple[str, str], max_length: int, side: str = "right") -> dict[str, Any]:
        """Token ids, token types and offsets, cut to `max_length`, longest first."""
        self.tokenizer.truncation_side = side
        columns = self.tokenizer(
            [text],  # as a list: alone, a pair with an empty second text is taken for a single text
            truncation="longest_first",
            max_length=max_length,
            return_offsets_mapping=True,
            return_token_type_ids=True,
        )
        return {name: column[0] for name, column in columns.items()}

    def run(self, ids: Ids, types: Ids) -> tuple[Array, Array]:
        """Hidden states (L + 1, N, C) and attention weights (L, H, N, N) of one input, alone."""
        with torch.inference_mode():
            output = self.model(
                input_ids=torch.tensor([list(ids)]),
                token_type_ids=torch.tensor([list(types)]),
                attention_mask=torch.ones(1, len(ids), dtype=torch.long),
                output_hidden_states=True,
                output_attentions=True,
            )
        assert output.attentions, "the reference computed no attention"
        assert all(map_ is not None and map_.numel() for map_ in output.attentions)
        return torch.cat(output.hidden_states).numpy(), torch.cat(output.attentions).numpy()


def write_tokenizer(folder: Path, *, model_max_length: int = 64) -> int:
    """Write a small uncased WordPiece tokenizer in Hugging Face form; returns the size of its vocabulary."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

    specials = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    letters = "abcdefghijklmnopqrstuvwxyz0123456789"
    words = [
        "the",
        "man",
        "beats",
        "boy",
        "##ing",
        "hello",
        "world",
        "日",
        "本",
        "🙂",
        ".",
        ",",
        "[",
        "]",
        ":",
    ]
    vocabulary = [*specials, *letters, *(f"##{letter}" for letter in letters), *words]
    tokenizer = Tokenizer(
        models.WordPiece({token: i for i, token in enumerate(vocabulary)}, unk_token="[UNK]")  # noqa: S106 - a vocabulary entry
    )
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.add_special_tokens(specials)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
    )
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    roles = {f"{role}_token": f"[{role.upper()}]" for role in ("pad", "unk", "cls", "sep", "mask")}
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": model_max_length, **roles}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings), encoding="utf-8")
    return len(vocabulary)


SUITED: dict[str, Any] = {"hidden_size": 64}
"""Of `write_bert`: heads of 16, which our kernels take; by default they are of 8."""


def write_bert(folder: Path, *, architecture: str = "BertModel", seed: int = 0, **options: Any) -> Any:
    """Save a small BERT of random weights, in which every parameter counts, with its tokenizer.

    `options` go to `BertConfig`. Returns the model that was saved.
    """
    import transformers

    sizes = {
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "intermediate_size": 48,
        "max_position_embeddings": 64,
    }
    config = transformers.BertConfig(vocab_size=write_tokenizer(folder), **{**sizes, **options})
    torch.manual_seed(seed)
    model = getattr(transformers, architecture)(config)
    with torch.no_grad():
        for parameter in model.parameters():
            noise = torch.randn_like(parameter)
            parameter.add_(noise * (0.3 if parameter.dim() == 1 else parameter.shape[-1] ** -0.5))
    model.save_pretrained(folder)
    return model
