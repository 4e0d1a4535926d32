"""Measures `/rerank` with a reranker that says yes or no, compared with passes that share nothing.

The model has the sizes of Qwen3-Reranker-0.6B, its template, and random weights, on which speed does not
depend; its tokenizer knows each word of the texts as one token. A request is a query of eight words and 100
texts of 130 tokens, which 100 words of English are. Contestants:

- rerank: the request over HTTP, on a free port of the loopback interface, with the settings in the
  environment (`HEADLIGHT_…`);
- passes: the same pairs in this process in the same precision, sorted and in batches of as many tokens as the
  service takes, each of which runs whole.

They take turns in a shuffled order within each round; the ratio is formed within a round, and the median is
shown. The scores of both are compared first.

    python -m benchmarks.service.yes_no [--layers 28] [--rounds 3] [--texts 100]
"""

import json
import random
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import httpx
import numpy as np
import torch
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from benchmarks.kit import machine, tables
from benchmarks.kit.command_line import parser_for
from benchmarks.kit.servers import Headlight
from benchmarks.kit.turns import take_turns
from model.checkpoints.checkpoint import load_checkpoint
from model.checkpoints.source import EMBEDDED, resolve
from model.contract import Batch, Encoding, LogitsWant, Want
from model.pytorch.backend import TorchBackend
from tests.references import decoders, logit_score

TEMPLATE = (
    "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and the "
    'Instruct provided. Note that the answer can only be "yes" or "no".<|im_end|>\n<|im_start|>user\n'
    "<Instruct>: Given a web search query, retrieve relevant passages that answer the query\n"
    "<Query>: {{ messages[0].content }}\n<Document>: {{ messages[1].content }}<|im_end|>\n"
    "<|im_start|>assistant\n<think>\n\n</think>\n\n\n"
)
MARKERS = ["<|im_start|>", "<|im_end|>", "<think>", "</think>"]
SIZES: dict[str, Any] = {
    "vocab_size": 151_669,
    "hidden_size": 1024,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "intermediate_size": 3072,
    "max_position_embeddings": 40_960,
}
OF_PASSES = 1.3
"""The target for the speed of passes that share nothing."""
_QUERY, _TEXT = 8, 130
_LONGEST = 8192
_START_S, _ANSWER_S = 180.0, 600.0
_CLOSE = 0.05
"""How far apart scores may be: random weights give logits of all sizes, rounded to bfloat16."""


def main() -> None:
    """Write the model, start the service, let both take turns, and print."""
    parser = parser_for(__doc__)
    parser.add_argument("--layers", type=int, default=28)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--texts", type=int, default=100)
    arguments = parser.parse_args()
    words = vocabulary()
    draw = random.Random(0)  # noqa: S311
    query, *texts = (" ".join(draw.choices(words, k=k)) for k in (_QUERY, *[_TEXT] * arguments.texts))
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "reranker"
        write_reranker(folder, words, arguments.layers)
        service = Headlight(model=folder, processes="1", request_timeout_s=_ANSWER_S)
        stack.callback(service.end)
        service.wait_until_ready(_START_S)
        info = httpx.get(f"{service.url}/info", trust_env=False).json()["models"][0]
        checkpoint = load_checkpoint(folder, deferred=True)
        encodings = checkpoint.tokenizer.encode([(query, text) for text in texts])
        backend = TorchBackend(checkpoint, device="cpu", dtype=info["dtype"])
        contestants: dict[str, Callable[[], Sequence[float]]] = {
            "rerank": partial(rerank, service, query, texts),
            "passes": partial(passes, backend, encodings),
        }
        compare(contestants)
        seconds = take_turns(contestants, arguments.rounds)
    facts = [*machine.facts(info["dtype"]), ("kernels", info["kernels"] or "PyTorch's")]
    tables.print_facts("Machine", [*facts, ("tokens of a pair", str(len(encodings[0])))])
    rows = [[name, f"{sorted(each)[len(each) // 2]:.2f}"] for name, each in seconds.items()]
    tables.print_table(f"{len(texts)} texts, {arguments.layers} layers", ["", "s"], rows)
    ratios = [a / b for a, b in zip(seconds["passes"], seconds["rerank"], strict=True)]
    tables.print_checks([tables.Check("speed of /rerank / passes that share nothing", ratios, OF_PASSES)])


def vocabulary() -> list[str]:
    """Return words of the embedded model's vocabulary."""
    file = resolve(EMBEDDED) / "tokenizer.json"
    known = json.loads(file.read_text(encoding="utf-8"))["model"]["vocab"]
    return sorted(word for word in known if word.isascii() and word.isalpha())


def write_reranker(folder: Path, words: Sequence[str], layers: int) -> None:
    """Save the model in bfloat16, as such models are published."""
    with (
        patch.object(decoders, "write_byte_pairs", partial(write_tokenizer, words)),
        patch.object(logit_score, "write_byte_pairs", partial(write_tokenizer, words)),
    ):
        written = logit_score.write_reranker(
            folder, template=TEMPLATE, num_hidden_layers=layers, tie_word_embeddings=True, **SIZES
        )
    written.model.to(torch.bfloat16).save_pretrained(folder)


def write_tokenizer(words: Sequence[str], folder: Path, **_: object) -> int:
    """Write a tokenizer of Qwen's class with the words, and those of the template; returns its size."""
    import transformers  # noqa: PLC0415 - takes seconds

    pairs = Tokenizer(models.BPE())
    pairs.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=40_000,
        special_tokens=[decoders.END, *MARKERS],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    pairs.train_from_iterator([" ".join(words), TEMPLATE, TEMPLATE], trainer)
    trained = json.loads(pairs.to_str())["model"]
    tokenizer = transformers.Qwen2Tokenizer(
        vocab=trained["vocab"],
        merges=[tuple(pair) for pair in trained["merges"]],
        model_max_length=_LONGEST,
        additional_special_tokens=MARKERS,
    )
    tokenizer.save_pretrained(folder)
    return len(tokenizer)


def rerank(service: Headlight, query: str, texts: Sequence[str]) -> list[float]:
    """Send one request; returns the scores in the order of the texts."""
    body = {"query": query, "texts": texts}
    answer = httpx.post(f"{service.url}/rerank", json=body, timeout=_ANSWER_S, trust_env=False)
    found = answer.raise_for_status().json()["data"]
    return [item["score"] for item in sorted(found, key=lambda item: item["index"])]


def passes(backend: TorchBackend, encodings: Sequence[Encoding]) -> list[float]:
    """Run the pairs in batches that share nothing; returns the scores."""
    want, logits = Want(heads=(LogitsWant(),)), np.empty(len(encodings))
    order = sorted(range(len(encodings)), key=lambda i: len(encodings[i]))
    each = max(1, backend.budget // len(encodings[order[-1]]))
    with patch("model.pytorch.backend.find_prefixes", return_value={}):
        for start in range(0, len(order), each):
            some = order[start : start + each]
            outputs = backend.run(Batch.pack([encodings[i] for i in some], [want] * len(some)))
            logits[some] = [output.heads["logits"][0] for output in outputs]
    return list((1 / (1 + np.exp(-logits))).tolist())


def compare(contestants: dict[str, Callable[[], Sequence[float]]]) -> None:
    """Run both once; ends the program if their scores differ."""
    ours, theirs = (np.array(run()) for run in contestants.values())
    furthest = float(np.abs(ours - theirs).max())
    if furthest > _CLOSE:
        raise SystemExit(f"The scores differ by up to {furthest:.4f}, more than {_CLOSE}.")


if __name__ == "__main__":
    main()
