"""A plain route around `transformers` that returns attention maps, as one would write it without headlight.

`service/maps.py` compares headlight with it. `PLAIN_ROUTE_MODEL` is the folder of the model, which runs in
float32, as it was saved. The routes are not coroutines, so they run in FastAPI's thread pool.

`/attention` has no return type, so FastAPI encodes the answer value by value. `/typed` is the same with a
return type: pydantic writes the JSON, twice as fast.

    PLAIN_ROUTE_MODEL=… uvicorn benchmarks.peers.plain_route:app
"""

import os
from typing import Any

import torch
from fastapi import FastAPI
from pydantic import BaseModel
from transformers import AutoModel, AutoTokenizer

FOLDER = os.environ["PLAIN_ROUTE_MODEL"]

app = FastAPI()
tokenizer = AutoTokenizer.from_pretrained(FOLDER)
model = AutoModel.from_pretrained(FOLDER, attn_implementation="eager").eval()


class Body(BaseModel):
    """A request."""

    text: str


@app.post("/attention", response_model=None)
@app.post("/typed")
def attention(body: Body) -> dict[str, Any]:
    """Return the maps of the last layer: (heads, queries, keys)."""
    inputs = tokenizer(body.text, return_tensors="pt", truncation=True)
    with torch.inference_mode():
        attentions = model(**inputs, output_attentions=True).attentions
    tokens = tokenizer.convert_ids_to_tokens(inputs["input_ids"][0])
    return {"tokens": tokens, "attention": attentions[-1][0].tolist()}
