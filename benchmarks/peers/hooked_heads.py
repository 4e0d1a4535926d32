"""Leaves out each head in turn by a hook on `transformers`, in a process that `kit/servers.py` starts.

The model, a classifier in the folder HOOKED_MODEL, runs in float32 on all cores, as it is loaded by default.
Each line of standard input is a text; the answer, a line of JSON, is what the logit that it predicts loses
without each head, (layers, heads): one pass for each of them, with a hook that sets its output to 0.

    HOOKED_MODEL=folder python -m benchmarks.peers.hooked_heads
"""

import json
import os
import sys
from typing import Any

import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer


def main() -> None:
    """Load the model and answer texts until the input ends."""
    folder = os.environ["HOOKED_MODEL"]
    model = AutoModelForSequenceClassification.from_pretrained(folder, dtype=torch.float32).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    for line in sys.stdin:
        with torch.inference_mode():
            print(json.dumps(effects(model, tokenizer(line.strip(), return_tensors="pt"))), flush=True)


def effects(model: Any, inputs: Any) -> list[list[float]]:
    """Return what the largest logit loses without each head."""
    whole = model(**inputs).logits[0]
    label, config = int(whole.argmax()), model.config
    size = config.hidden_size // config.num_attention_heads
    found = []
    for layer in model.base_model.encoder.layer:
        losses = []
        for head in range(config.num_attention_heads):

            def leave_out(_: Any, arguments: Any, head: int = head) -> Any:
                (x,) = arguments
                x = x.clone()
                x[..., head * size : (head + 1) * size] = 0
                return (x,)

            hook = layer.attention.output.dense.register_forward_pre_hook(leave_out)
            losses.append(float(whole[label] - model(**inputs).logits[0, label]))
            hook.remove()
        found.append(losses)
    return found


if __name__ == "__main__":
    main()
