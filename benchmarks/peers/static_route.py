"""A plain route around model2vec's `encode`, as one would write it without headlight.

`static/rates.py` compares headlight with it. `STATIC_ROUTE_MODEL` is the folder of the model. The route is no
coroutine, so it runs in FastAPI's thread pool; with its return type, pydantic writes the JSON.

    STATIC_ROUTE_MODEL=… uvicorn benchmarks.peers.static_route:app
"""

import os

from fastapi import FastAPI
from model2vec import StaticModel
from pydantic import BaseModel

app = FastAPI()
model = StaticModel.from_pretrained(os.environ["STATIC_ROUTE_MODEL"])


class Body(BaseModel):
    """A request."""

    inputs: list[str]


@app.post("/encode")
def encode(body: Body) -> list[list[float]]:
    """Return a vector for each text."""
    vectors: list[list[float]] = model.encode(body.inputs).tolist()
    return vectors
