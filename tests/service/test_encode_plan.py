"""From what was asked to what each sequence must return."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from model.contract import ModelInfo
from service.protocols.native.schemas import EncodeRequest
from service.tasks.embed import plan_encode
from service.tasks.errors import OptionError
from service.tasks.indices import resolve
from service.tasks.prompts import choose_prompt, find_prompt
from tests.support.doubles import tokenizer

INFO = ModelInfo(
    family="bert",
    layers=6,
    heads=12,
    attention_layers=tuple(range(6)),
    hidden_size=384,
    max_length=256,
    pooling=("mean",),
    normalize=True,
    sentence_size=384,
    dense=False,
    prompts={"query": "query: ", "passage": "passage: "},
    default_prompt_name="query",
    include_prompt=True,
    backend="torch",
    device="cpu",
    dtype="float32",
)
DENSE = replace(INFO, dense=True, sentence_size=128)


def encode(**options: Any) -> EncodeRequest:
    return EncodeRequest.model_validate({"inputs": "a", **options})


@given(count=st.integers(1, 30), data=st.data())
def test_indices_count_from_either_end(count: int, data: st.DataObject) -> None:
    """An index means what it means in Python."""
    indices = data.draw(st.lists(st.integers(-count, count - 1), min_size=1))
    assert list(resolve(indices, count, what="layers", option="layers")) == [range(count)[i] for i in indices]


@given(count=st.integers(1, 30), index=st.integers(-100, 100))
def test_an_index_that_does_not_exist_is_refused_with_the_range(count: int, index: int) -> None:
    """Nothing wraps around, and nothing is clipped."""
    if index in range(-count, count):
        assert resolve([index], count, what="layers", option="layers") == (index % count,)
        return
    with pytest.raises(OptionError) as refused:
        resolve([0, index], count, what="layers", option="layers")
    assert (refused.value.option, refused.value.members["actual"]) == ("layers.1", index)
    assert refused.value.members["allowed"] == [-count, count - 1]


def test_the_models_own_way_is_the_default() -> None:
    """Pooling, norm and the last hidden state, as the model's folder says."""
    plan = plan_encode(encode().embeddings, replace(INFO, pooling=("cls",), normalize=False))
    assert plan.sentence is not None
    assert (plan.sentence.modes, plan.sentence.layers) == (("cls",), (6,))
    assert (plan.sentence.normalize, plan.sentence.dimensions) == (False, None)
    assert (plan.sentence_size, plan.token_layers) == (384, ())
    plan = plan_encode(encode(normalize=False, pooling="mean_max").embeddings, INFO)
    assert plan.sentence is not None
    assert (plan.sentence.modes, plan.sentence.normalize) == (("mean", "max"), False)
    assert plan.sentence_size == 768


def test_what_is_not_wanted_is_not_planned() -> None:
    """Without a sentence vector nothing is pooled, and without tokens no layer is kept."""
    plan = plan_encode(encode(outputs=["tokens"], layers=[0, -1]).embeddings, INFO)
    assert (plan.sentence, plan.token_layers, plan.sentence_size) == (None, (0, 6), 0)


def test_the_largest_vector_is_known_before_it_is_computed() -> None:
    """Components of all poolings and layers, or as many as are kept."""
    assert (
        plan_encode(encode(pooling="mean_max", pooling_layers=[0, 1, 2]).embeddings, INFO).sentence_size
        == 6 * 384
    )
    assert plan_encode(encode(dimensions=10).embeddings, INFO).sentence_size == 10
    with pytest.raises(OptionError) as refused:
        plan_encode(encode(dimensions=769, pooling="mean_max").embeddings, INFO)
    assert refused.value.members["allowed"] == [1, 768]


def test_a_linear_layer_after_the_pooling_takes_vectors_of_its_own_size_only() -> None:
    """A model with dense layers cannot pool in a way of another size, and says so."""
    assert plan_encode(encode(pooling="cls").embeddings, DENSE).sentence_size == 128
    assert plan_encode(encode(pooling_layers=[3], dimensions=128).embeddings, DENSE).sentence_size == 128
    with pytest.raises(OptionError) as refused:
        plan_encode(encode(pooling="mean_max").embeddings, DENSE)
    assert refused.value.option == "pooling"
    with pytest.raises(OptionError) as refused:
        plan_encode(encode(pooling_layers=[0, 1]).embeddings, DENSE)
    assert refused.value.option == "pooling_layers"
    with pytest.raises(OptionError):
        plan_encode(encode(dimensions=129).embeddings, DENSE)
    assert plan_encode(encode(outputs=["tokens"]).embeddings, DENSE).sentence is None


@pytest.mark.parametrize("include_prompt", [True, False])
def test_a_prompt_is_pooled_only_where_the_model_does(include_prompt: bool) -> None:
    """Models trained without their prompt in the pooling leave its tokens out."""
    (prompted,) = tokenizer().encode(["hello"], prompt="query: ")
    (plain,) = tokenizer().encode(["hello"])
    plan = plan_encode(encode().embeddings, replace(INFO, include_prompt=include_prompt))
    want = plan.want(prompted).sentence
    assert want is not None
    assert want.skip == (0 if include_prompt else 3)  # [CLS] query :
    without = plan.want(plain).sentence
    assert without is not None
    assert without.skip == 0


def test_which_prompt_stands_before_the_texts() -> None:
    """A literal one, else a named one, else the model's default, else none."""
    assert choose_prompt(INFO) == "query: "
    assert choose_prompt(INFO, "passage") == "passage: "
    assert choose_prompt(INFO, prompt="mine") == "mine"
    assert choose_prompt(INFO, prompt="") == ""
    assert choose_prompt(replace(INFO, default_prompt_name=None)) == ""
    with pytest.raises(OptionError) as refused:
        choose_prompt(INFO, "other")
    assert refused.value.members["allowed"] == ["query", "passage"]
    with pytest.raises(OptionError):
        choose_prompt(INFO, "")


def test_a_task_of_an_adapter_needs_no_prompt() -> None:
    """Its name is a purpose, though no protocol knows it; as an `input_type` it would choose nothing."""
    adapted = replace(INFO, tasks=("summaries",))
    assert find_prompt("task", "summaries", adapted) is None
    for field, info in (("input_type", adapted), ("task", INFO)):
        with pytest.raises(OptionError):
            find_prompt(field, "summaries", info)


@pytest.mark.parametrize("purpose", ["document", "search_document", "retrieval.passage", "passage"])
def test_a_prompt_named_corpus_is_put_before_documents(purpose: str) -> None:
    """As sentence-transformers does, if the model has none of the usual names."""
    corpus = replace(INFO, prompts={"query": "query: ", "corpus": "text: "})
    assert find_prompt("input_type", purpose, corpus) == "corpus"
    assert find_prompt("input_type", purpose, INFO) == "passage"
