"""Runs a Qwen3 checkpoint with llama.cpp, in its own process, which `passes/llama_cpp.py` starts.

It writes the checkpoint as a GGUF file without a vocabulary, in `F16` or `Q8_0` (norms stay in float32),
reads lines of JSON from standard input, each a list of lists of token ids, runs each list of texts in one
call, and answers with one line: the seconds that it took, and the first text's last hidden state.

    PYTHON -m benchmarks.peers.llama_decoder F16|Q8_0 FOLDER THREADS

`PYTHON` is one that has `llama-cpp-python`, `gguf` and `numpy`; so nothing of headlight is imported here.
"""

import json
import struct
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import llama_cpp
import numpy as np
from gguf import GGMLQuantizationType, GGUFWriter, quantize

_NAMES = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
"""transformers' names of a layer's weights -> those of GGUF."""
_LONGEST = 8192


def tensors(path: Path) -> Iterator[tuple[str, np.ndarray]]:
    """Read a file of safetensors, in float32."""
    with path.open("rb") as file:
        (size,) = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(size))
        for name, entry in header.items():
            if name == "__metadata__":
                continue
            begin, end = entry["data_offsets"]
            file.seek(8 + size + begin)
            raw = file.read(end - begin)
            if entry["dtype"] == "BF16":
                values = (np.frombuffer(raw, np.uint16).astype(np.uint32) << 16).view(np.float32)
            else:
                values = np.frombuffer(raw, {"F32": np.float32, "F16": np.float16}[entry["dtype"]])
            yield name, values.astype(np.float32).reshape(entry["shape"])


def renamed(name: str) -> str:
    """Give a weight GGUF's name."""
    name = name.removeprefix("model.").removesuffix(".weight")
    if name.startswith("layers."):
        _, number, rest = name.split(".", 2)
        return f"blk.{number}.{_NAMES[rest]}.weight"
    return {"embed_tokens": "token_embd.weight", "norm": "output_norm.weight"}[name]


def write(folder: Path, path: Path, kind: GGMLQuantizationType) -> None:
    """Write a checkpoint as GGUF."""
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    rope = config.get("rope_parameters") or config
    writer = GGUFWriter(path, "qwen3")
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_key_length(config["head_dim"])
    writer.add_value_length(config["head_dim"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_rope_freq_base(rope["rope_theta"])
    writer.add_tokenizer_model("none")
    writer.add_vocab_size(config["vocab_size"])
    for name, values in tensors(folder / "model.safetensors"):
        if values.ndim == 1:
            writer.add_tensor(renamed(name), values)
        else:
            writer.add_tensor(renamed(name), quantize(values, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


class Decoder:
    """A model, and a context whose results are the hidden states of last tokens."""

    def __init__(self, path: Path, threads: int) -> None:
        llama_cpp.llama_backend_init()
        self._model = llama_cpp.llama_model_load_from_file(
            str(path).encode(), llama_cpp.llama_model_default_params()
        )
        settings = llama_cpp.llama_context_default_params()
        settings.n_ctx = settings.n_batch = settings.n_ubatch = _LONGEST
        settings.n_seq_max = 32
        settings.n_threads = settings.n_threads_batch = threads
        settings.embeddings = True
        settings.pooling_type = llama_cpp.LLAMA_POOLING_TYPE_LAST
        settings.kv_unified = True
        self._context = llama_cpp.llama_init_from_model(self._model, settings)
        self._size = llama_cpp.llama_model_n_embd(self._model)
        self._batch = llama_cpp.llama_batch_init(_LONGEST, 0, 1)

    def run(self, texts: Sequence[Sequence[int]]) -> np.ndarray:
        """Run texts in one call; returns the first one's hidden state of its last token, float32 (C,)."""
        batch, filled = self._batch, 0
        for number, ids in enumerate(texts):
            for position, id_ in enumerate(ids):
                batch.token[filled] = id_
                batch.pos[filled] = position
                batch.n_seq_id[filled] = 1
                batch.seq_id[filled][0] = number
                batch.logits[filled] = 1
                filled += 1
        batch.n_tokens = filled
        clear_data = True
        llama_cpp.llama_memory_clear(llama_cpp.llama_get_memory(self._context), clear_data)
        start = time.perf_counter()
        if llama_cpp.llama_decode(self._context, batch) != 0:
            raise SystemExit("llama_decode failed.")
        vector = np.ctypeslib.as_array(
            llama_cpp.llama_get_embeddings_seq(self._context, 0), (self._size,)
        ).copy()
        self.seconds = time.perf_counter() - start
        return vector


def main() -> None:
    """Answer lines until the input ends."""
    kind, folder, threads = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / "model.gguf"
        write(folder, path, GGMLQuantizationType[kind])
        decoder = Decoder(path, threads)
        for line in sys.stdin:
            vector = decoder.run(json.loads(line))
            print(json.dumps([decoder.seconds, vector.tolist()]), flush=True)


if __name__ == "__main__":
    main()
