"""What clients send: lenient about how a whole number is written, strict about everything else."""

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ValidationError

from model.errors import ModelError
from service.http.validation_errors import from_validation_error
from service.problems import Problem, from_model_error
from service.protocols.native.schemas import AttentionRequest, EncodeRequest
from service.tasks.attend import plan_attention
from service.tasks.embed import plan_encode
from service.tasks.errors import OptionError
from tests.service.test_encode_plan import INFO
from tests.support.doubles import tokenizer

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
junk: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)


@given(text=texts)
def test_one_text_is_a_list_of_one(text: str) -> None:
    """A text alone and a list of it are the same request."""
    assert EncodeRequest.model_validate({"inputs": text}) == EncodeRequest.model_validate({"inputs": [text]})


@given(some=st.lists(texts, min_size=1, max_size=5))
def test_texts_are_taken_as_they_are(some: list[str]) -> None:
    """Nothing is stripped or normalised before the tokenizer."""
    assert list(EncodeRequest.model_validate({"inputs": some}).inputs) == some


@given(pairs=st.lists(st.tuples(texts, texts), min_size=1, max_size=5))
def test_pairs_are_nested(pairs: list[tuple[str, str]]) -> None:
    """Lists of two texts inside a list are pairs."""
    body = {"inputs": [list(pair) for pair in pairs]}
    assert AttentionRequest.model_validate(body).inputs == pairs


def check(request: EncodeRequest | AttentionRequest) -> None:
    """Check a request against the model, as its route does."""
    (encoding,) = tokenizer().encode(["a"])
    if isinstance(request, EncodeRequest):
        plan_encode(request.embeddings, INFO)
    else:
        plan_attention(request.options, INFO, plan_encode(request.embeddings, INFO)).view(0, encoding, "a")


@given(
    route=st.sampled_from(["encode", "tokens", "attention"]),
    name=st.sampled_from([*EncodeRequest.model_fields, *AttentionRequest.model_fields, "x"]),
    value=junk | st.lists(st.floats(allow_nan=False, allow_infinity=False) | st.integers(), max_size=3),
)
def test_whatever_is_sent_is_read_or_refused_in_a_document(route: str, name: str, value: Any) -> None:
    """No value of any field leads to another error than a refusal that says which field it is."""
    schema = AttentionRequest if route == "attention" else EncodeRequest
    body = {"inputs": "a", **({"outputs": ["tokens"]} if route == "tokens" else {}), name: value}
    try:
        check(schema.model_validate(body))
    except ValidationError as error:
        problem = from_validation_error(error, schema)
    except ModelError as error:
        problem = from_model_error(error)
    except OptionError as error:
        problem = Problem(error.kind, error.say(str), members={"field": error.option, **error.members})
    else:
        return
    document = json.loads(problem.document(instance="/", request_id="a"))
    assert document["type"] == "urn:headlight:invalid-request"
    assert document["field"].split(".")[0] in {name, "inputs", "layers"}


@given(number=st.integers(1, 9))
def test_a_whole_number_may_have_a_point(number: int) -> None:
    """6 and 6.0 are the same integer; "6" and true are none."""
    assert AttentionRequest.model_validate({"inputs": "a", "decimals": float(number)}).decimals == number
    for wrong in (str(number), True, number + 0.5, [number], None):
        with pytest.raises(ValidationError):
            AttentionRequest.model_validate({"inputs": "a", "decimals": wrong})


@given(indices=st.lists(st.integers(-5, 5), min_size=1))
def test_index_lists_keep_their_order_and_duplicates(indices: list[int]) -> None:
    """The order that was asked for is the order that is served."""
    body = {"inputs": "a", "layers": [float(i) for i in indices]}
    assert AttentionRequest.model_validate(body).layers == tuple(indices)


@pytest.mark.parametrize("schema", [EncodeRequest, AttentionRequest])
def test_every_field_is_described(schema: type[BaseModel]) -> None:
    """The descriptions are the documentation of the API."""
    for name, field in schema.model_fields.items():
        assert field.description, name
        assert re.match(r"[`A-Z]", field.description), name


def test_the_fields_are_those_of_the_contract() -> None:
    """What is documented is accepted, and nothing else."""
    common = {
        "inputs",
        "model",
        "truncate",
        "truncation_side",
        "prompt_name",
        "prompt",
        "task",
        "columns",
    } | {"interventions"}
    encode = {"outputs", "pooling", "pooling_layers", "normalize", "dimensions", "layers"}
    encode |= {"precision", "chunks", "overlap", "top_k", "role", "positions"}
    assert set(EncodeRequest.model_fields) == common | encode
    attention = {"layers", "heads", "aggregate", "queries", "keys", "decimals"}
    assert common | attention <= set(AttentionRequest.model_fields)
