"""Requests of the Open Inference Protocol, and what their answers carry."""

import json
import struct
from typing import Any

import httpx
import numpy as np
from numpy.typing import NDArray

from tests.support.serving import JSON, Json, Service

LENGTH = "Inference-Header-Content-Length"
OCTETS = "application/octet-stream"


def path(model: str = "mini", rest: str = "infer") -> str:
    """The path of a model."""
    return f"/v2/models/{model}/{rest}"


def text(*texts: str, name: str = "text") -> Json:
    """Texts as a tensor in JSON."""
    return {"name": name, "shape": [len(texts)], "datatype": "BYTES", "data": list(texts)}


def ids(rows: Any, name: str = "input_ids") -> Json:
    """Numbers as a tensor in JSON, in rows."""
    return {"name": name, "shape": list(np.shape(rows)), "datatype": "INT64", "data": rows}


def elements(*texts: str | bytes) -> bytes:
    """Texts as the bytes of a tensor."""
    coded = [one.encode() if isinstance(one, str) else one for one in texts]
    return b"".join(struct.pack("<I", len(one)) + one for one in coded)


def binary(tensor: Json, octets: bytes) -> Json:
    """A tensor whose data are bytes after the JSON."""
    rest = {name: value for name, value in tensor.items() if name != "data"}
    return {**rest, "parameters": {"binary_data_size": len(octets)}}


def ask(service: Service, body: Json, *octets: bytes, to: str = "mini", **headers: str) -> httpx.Response:
    """Send a request as tritonclient does: without a Content-Type, bytes after the JSON."""
    head = json.dumps(body).encode()
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    if octets:
        sent.setdefault(LENGTH, str(len(head)))
    return service.http.post(path(to), content=b"".join((head, *octets)), headers=sent)


def vectors(response: httpx.Response) -> tuple[NDArray[np.float32], Json]:
    """The embeddings of an answer, in JSON or in bytes after it, and the JSON."""
    assert response.status_code == 200, response.text
    length = response.headers.get(LENGTH)
    assert response.headers["content-type"] == (JSON if length is None else OCTETS)
    end = len(response.content) if length is None else int(length)
    answer: Json = json.loads(response.content[:end])
    (output,) = answer["outputs"]
    assert (output["name"], output["datatype"]) == ("embedding", "FP32")
    if length is None:
        values = np.array(output["data"], np.float32)
        assert values.ndim == 1, "flat"
    else:
        assert "data" not in output
        assert output["parameters"] == {"binary_data_size": len(response.content) - end}
        values = np.frombuffer(response.content[end:], "<f4")
    return values.reshape(output["shape"]), answer


def assert_error(response: httpx.Response, status: int, part: str) -> None:
    """Check that an answer is one sentence, uncompressed JSON, as tritonclient reads it."""
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == JSON
    assert response.headers["x-request-id"]
    assert "content-encoding" not in response.headers
    error = response.json()
    assert list(error) == ["error"]
    assert part in error["error"]
