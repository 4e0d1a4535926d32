"""Compares a family's checkpoints, as the product runs them, with a reference."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pytest
from numpy.typing import NDArray

from model.checkpoints.checkpoint import load_checkpoint
from model.contract import Backend, Encoding
from model.pytorch.backend import TorchBackend
from tests.references.comparing import distance, relative_distance
from tests.references.families import VOCABULARY, Written, change_config, write_model
from tests.references.jina_v3 import CODE
from tests.support.exporting import export_silently, opened
from tests.support.kernel import EVERY, held_to_widening, round_to_bfloat16
from tests.support.product import run, want_all

Array = NDArray[np.float64]
EXACT, AS_A_GRAPH = 1e-5, 1e-4
SAME_DIRECTION = 0.9999


SIZES: dict[str, Any] = {
    "hidden_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 3,
    "intermediate_size": 40,
    "max_position_embeddings": 64,
}
"""Of a small model, in the names that most families use: heads of 16, which our kernels take."""

_T5 = {"d_model": 48, "d_kv": 16, "num_layers": 2, "num_heads": 3, "d_ff": 40}
SMALL: dict[str, tuple[str, Mapping[str, Any]]] = {
    "bert": ("Bert", SIZES),
    "roberta": ("Roberta", SIZES),
    "xlm-roberta": ("XLMRoberta", SIZES),
    "camembert": ("Camembert", SIZES),
    "roberta-prelayernorm": ("RobertaPreLayerNorm", SIZES),
    "xlm-roberta-xl": ("XLMRobertaXL", SIZES),
    "megatron-bert": ("MegatronBert", SIZES),
    "distilbert": (
        "DistilBert",
        {"dim": 48, "n_layers": 2, "n_heads": 3, "hidden_dim": 40, "max_position_embeddings": 64},
    ),
    "electra": ("Electra", {**SIZES, "embedding_size": 16}),
    "albert": ("Albert", {**SIZES, "embedding_size": 16}),
    "rembert": ("RemBert", {**SIZES, "input_embedding_size": 16, "output_embedding_size": 56}),
    "mpnet": ("MPNet", SIZES),
    "deberta-v2": ("DebertaV2", {**SIZES, "relative_attention": True, "pos_att_type": ["c2p", "p2c"]}),
    "modernbert": ("ModernBert", {**SIZES, "classifier_pooling": "cls"}),
    "eurobert": ("EuroBert", {**SIZES, "num_key_value_heads": 3, "classifier_pooling": "bos"}),
    "ultrabert": ("Ultrabert", {**SIZES, "sliding_window": 6, "prediction_head_size": 56}),
    "qwen3": ("Qwen3", {**SIZES, "head_dim": 32, "num_key_value_heads": 1}),
    "jina_embeddings_v5": ("Qwen3", {**SIZES, "head_dim": 16, "num_key_value_heads": 3}),
    "bidirectional_pplx_qwen3": ("Qwen3", {**SIZES, "is_causal": False, "num_key_value_heads": 3}),
    "qwen2": ("Qwen2", {**SIZES, "num_key_value_heads": 1}),
    "gemma3_text": (
        "Gemma3Text",
        {
            **SIZES,
            "head_dim": 32,
            "num_key_value_heads": 1,
            "query_pre_attn_scalar": 20,
            "sliding_window": 6,
            "use_bidirectional_attention": True,
            "layer_types": ["sliding_attention", "sliding_attention", "full_attention"],
        },
    ),
    "gemma": ("Gemma", {**SIZES, "head_dim": 32, "num_key_value_heads": 1}),
    "llama": ("Llama", {**SIZES, "num_key_value_heads": 1}),
    "llama_bidirec": ("Llama", {**SIZES, "num_key_value_heads": 1, "is_causal": False}),
    "mistral": ("Mistral", {**SIZES, "num_key_value_heads": 1, "sliding_window": 6}),
    "lfm2": (
        "Lfm2",
        {
            **SIZES,
            "num_key_value_heads": 1,
            "block_multiple_of": 8,
            "layer_types": ["conv", "full_attention", "conv"],
        },
    ),
    "nomic_bert": ("NomicBert", SIZES),
    "gte": ("Gte", SIZES),
    "new": ("Gte", SIZES),
    "jina_embeddings_v3": ("JinaEmbeddingsV3", SIZES),
    "jina_xlm_roberta": ("JinaEmbeddingsV3", SIZES),
    "esm": ("Esm", {**SIZES, "position_embedding_type": "rotary", "pad_token_id": 1}),
    "t5": ("T5", _T5),
    "mt5": ("MT5", _T5),
    "umt5": ("UMT5", _T5),
}
"""A small model of each family: what the names of its classes in `transformers` begin with, and a config."""
ALIKE = (
    *("bidirectional_pplx_qwen3", "jina_embeddings_v5", "qwen2", "gemma3_text", "gemma"),
    *("llama", "llama_bidirec", "mistral"),
)
"""Decoders beside Qwen3, which has most of what they have; their own files test the rest."""
ATTENDING = [name for name in SMALL if name != "lfm2"]
"""Families of which every layer attends: kernels run them, and graphs."""
ENCODERS = {"t5": "EncoderModel", "mt5": "EncoderModel", "umt5": "EncoderModel"}
"""What follows in the names of their classes, where it is not "Model"."""
ORIGINALS: dict[str, tuple[str, Mapping[str, Any]]] = {
    "bidirectional_pplx_qwen3": (
        "PPLXQwen3",
        {"model_type": "bidirectional_pplx_qwen3", "is_causal": None, "use_bidirectional_attention": True},
    ),
    "jina_embeddings_v5": ("JinaEmbeddingsV5", {"model_type": "jina_embeddings_v5"}),
    "llama_bidirec": ("LlamaBidirectional", {"model_type": "llama_bidirec", "is_causal": None}),
    "new": ("New", {"model_type": "new", "rope_parameters": None, "rope_theta": 160_000.0}),
    "jina_xlm_roberta": (
        "XLMRoberta",
        {
            "model_type": "xlm-roberta",
            "auto_map": {"AutoConfig": CODE},
            "rope_parameters": None,
            "rotary_emb_base": 20_000.0,
        },
    ),
}
"""Families that are another's with an older config.json: the classes it names, and what else it says."""


def every_family(
    argument: str, names: Iterable[str] = SMALL, *, indirect: bool = False
) -> pytest.MarkDecorator:
    """Run a test with each family; with those that are like others, only where tests are thorough."""
    marks = {name: [pytest.mark.thorough] if name in ALIKE else [] for name in names}
    families = [pytest.param(name, marks=some) for name, some in marks.items()]
    return pytest.mark.parametrize(argument, families, indirect=indirect)


def every_option(options: Mapping[str, Any], quick: int = 1) -> pytest.MarkDecorator:
    """Run a test with each of some options; with all but the first few, only where tests are thorough."""
    marks = [[pytest.mark.thorough] if i >= quick else [] for i in range(len(options))]
    cases = zip(options.items(), marks, strict=True)
    return pytest.mark.parametrize(
        "options", [pytest.param(one, id=name, marks=some) for (name, one), some in cases]
    )


class Reference(Protocol):
    """A checkpoint folder, and what it computes."""

    @property
    def folder(self) -> Path:
        """The folder."""
        ...

    def run(self, ids: Sequence[int], segments: Sequence[int]) -> tuple[Array, Array]:
        """Hidden states (L + 1, N, C) and attention weights (L, H, N, N) of one input, alone."""
        ...


@dataclass(frozen=True)
class Once:
    """A reference that runs once for each input, however many ways of running a model it is compared with."""

    reference: Reference
    _found: dict[tuple[tuple[int, ...], ...], tuple[Array, Array]] = field(default_factory=dict)

    @property
    def folder(self) -> Path:
        return self.reference.folder

    def run(self, ids: Sequence[int], segments: Sequence[int]) -> tuple[Array, Array]:
        key = tuple(ids), tuple(segments)
        if key not in self._found:
            self._found[key] = self.reference.run(ids, segments)
        return self._found[key]


def write_small(folder: Path, family: str, kind: str, **options: Any) -> Written:
    """Save the small model of a family; `kind` is what follows in its class, such as "Model"."""
    name, config = SMALL[family]
    written = write_model(folder, name, architecture=f"{name}{kind}", **{**config, **options})
    if family in ORIGINALS:
        older, changes = ORIGINALS[family]
        change_config(folder, architectures=[older + kind], **changes)
    return written


def sample(lengths: Sequence[int] = (1, 2, 7, 20, 40), *, lowest: int = 5) -> list[Encoding]:
    """Random inputs of some lengths, from token `lowest` on; the last of each has a second segment."""
    generator = np.random.default_rng(0)
    return [
        encoding_of(generator.integers(lowest, VOCABULARY, length).tolist(), [0] * (length - length // 3))
        for length in lengths
    ]


def encoding_of(ids: Sequence[int], segments: Sequence[int] = ()) -> Encoding:
    """Tokens as a tokenizer gives them; those beyond the listed segments are of segment 1."""
    count = len(ids)
    return Encoding(
        token_ids=list(ids),
        segment_ids=[*segments, *[1] * (count - len(segments))] if segments else [0] * count,
        tokens=["?"] * count,
        offsets=[(0, 0)] * count,
        word_ids=[None] * count,
        special=[False] * count,
        truncated=False,
        original_length=count,
    )


PADDED = [encoding_of(ids) for ids in ([7, 1, 1, 9, 8, 1, 6], [1], [5, 6, 7], [1, 5, 7, 1, 1, 9, 8])]
"""Texts with the token 1, which is the padding token of RoBERTa and its relatives."""


def check(backend: Backend, reference: Reference, inputs: Sequence[Encoding], bound: float = EXACT) -> None:
    """Every hidden state and map of every input equals the reference's, alone and in one batch."""
    want = want_all(backend)
    together = run(backend, inputs, [want] * len(inputs))
    for encoding, beside in zip(inputs, together, strict=True):
        hidden, attention = reference.run(encoding.token_ids, encoding.segment_ids)
        assert hidden.shape[0] == backend.info.layers + 1
        assert attention.shape[:2] == (len(backend.info.attention_layers), backend.info.heads)
        for output in (beside, *run(backend, [encoding], [want])):
            assert output.tokens is not None
            assert distance(output.attention, attention) <= bound
            for ours, theirs in zip(output.tokens, hidden, strict=True):
                assert relative_distance(ours, theirs) <= bound


def check_torch(reference: Reference, inputs: Sequence[Encoding] | None = None) -> None:
    """`check` on PyTorch, with native kernels where they run, and without."""
    once, inputs = Once(reference), sample() if inputs is None else inputs
    for native in (True, False):
        checkpoint = load_checkpoint(reference.folder)  # kernels lay the weights out anew
        backend = TorchBackend(checkpoint, device="cpu", dtype="float32", native=native)
        check(backend, once, inputs)
    check_widened(once, inputs)


def check_widened(reference: Reference, inputs: Sequence[Encoding]) -> None:
    """With widened weights, states and maps are float64's of rounded weights, and near the reference's.

    Vectors of distances are not rounded, so with disentangled attention they are only near.
    """
    with held_to_widening():
        backend = TorchBackend(load_checkpoint(reference.folder), device="cpu", dtype="bfloat16")
    if backend.info.kernels is None:
        return
    assert (backend.info.kernels, backend.info.dtype) == (EVERY, "bfloat16")
    rounded = load_checkpoint(reference.folder)
    round_to_bfloat16(rounded.encoder)
    disentangled = rounded.encoder.config.disentangled is not None
    exact = TorchBackend(rounded, device="cpu", dtype="float64")
    want = want_all(backend)
    for encoding, ours in zip(inputs, run(backend, inputs, [want] * len(inputs)), strict=True):
        assert ours.tokens is not None
        hidden, _ = reference.run(encoding.token_ids, encoding.segment_ids)
        for state, plain in zip(ours.tokens, hidden, strict=True):
            assert cosine(state, plain) >= SAME_DIRECTION
        if disentangled:
            continue
        (theirs,) = run(exact, [encoding], [want])
        assert theirs.tokens is not None
        assert distance(ours.attention, theirs.attention) <= EXACT
        for state, expected in zip(ours.tokens, theirs.tokens, strict=True):
            assert relative_distance(state, expected) <= EXACT


def cosine(a: Array, b: Array) -> float:
    """Of all numbers of two arrays."""
    x, y = np.ravel(a).astype(np.float64), np.ravel(b).astype(np.float64)
    return float(x @ y / np.sqrt((x @ x) * (y @ y)))


def check_onnx(reference: Reference, place: Path, inputs: Sequence[Encoding] | None = None) -> None:
    """`check` on an exported graph, which has passed the export's own comparison in every quantity."""
    export_silently(reference.folder, place)
    backend = opened(place)
    check(backend, reference, sample() if inputs is None else inputs, AS_A_GRAPH)
