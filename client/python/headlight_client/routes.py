"""The routes of the service as methods, without sending anything."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Generic, Literal, TypeVar

from headlight_client.answers import Column, IntArray, attention_maps, encoded
from headlight_client.calls import ACCEPT_JSON, ACCEPT_LINES, ACCEPT_WHOLE, Call, call_of
from headlight_client.explanations import explained
from headlight_client.inputs import Inputs, id_lists, listed
from headlight_client.option_types import (
    Aggregate,
    Aggregation,
    AllOrIndices,
    AttentionOutput,
    Chunks,
    Edges,
    Indices,
    Intervention,
    Level,
    Method,
    Output,
    Pooling,
    Precision,
    Replacement,
    Role,
    Side,
    SimilarityFunction,
    SpecialTokens,
    Statistic,
    Unit,
    Weights,
)
from headlight_client.predictions import best, decoded, predicted, ranked, tokens_of
from headlight_client.similarities import SimilarityCall, concatenated

EncodeT = TypeVar("EncodeT")
PredictT = TypeVar("PredictT")
RankT = TypeVar("RankT")
SimilarityT = TypeVar("SimilarityT")
TokenizeT = TypeVar("TokenizeT")
DecodeT = TypeVar("DecodeT")
ExplainT = TypeVar("ExplainT")
AttentionT = TypeVar("AttentionT")
EncodeStreamT = TypeVar("EncodeStreamT")
AttentionStreamT = TypeVar("AttentionStreamT")


class Routes(
    ABC,
    Generic[
        EncodeT,
        AttentionT,
        EncodeStreamT,
        AttentionStreamT,
        PredictT,
        RankT,
        SimilarityT,
        TokenizeT,
        DecodeT,
        ExplainT,
    ],
):
    """The routes of the service. Options left out, or None, have the service's defaults.

    `inputs` is a text, or any number of texts or pairs of texts: a list, an array, a column of a data frame,
    a generator. Inputs that exceed the limits of one request are sent in several, `concurrency` at a time;
    items are in the order of the inputs, and `item.index` counts over all of them. The first request that
    fails cancels the others, and `error.rows` has its inputs.

    All raise HeadlightError: HeadlightConnectionError if the connection fails, HeadlightTimeout if it is too
    slow; and InputsError, before anything is sent, if an input is not a text.
    """

    @abstractmethod
    def _fetch(self, call: Call[Any]) -> Any:
        """Send a call and parse the whole response."""

    @abstractmethod
    def _stream(self, call: Call[Any]) -> Any:
        """Send a call and parse the items as they arrive."""

    def encode(
        self,
        inputs: Inputs,
        *,
        model: str | None = None,
        truncate: bool | None = None,
        truncation_side: Side | None = None,
        prompt_name: str | None = None,
        prompt: str | None = None,
        task: str | None = None,
        columns: Sequence[Column] | None = None,
        interventions: Sequence[Intervention] | None = None,
        outputs: Sequence[Output] | None = None,
        pooling: Pooling | None = None,
        pooling_layers: Indices | None = None,
        normalize: bool | None = None,
        dimensions: int | None = None,
        layers: AllOrIndices | None = None,
        positions: AllOrIndices | None = None,
        precision: Precision | None = None,
        chunks: Chunks | None = None,
        overlap: int | None = None,
        role: Role | None = None,
        top_k: int | None = None,
        dtype: Literal["float32", "float16"] | None = None,
        progress: bool = False,
    ) -> EncodeT:
        """`POST /encode`: sentence vectors, or with `outputs` token vectors.

        With `columns=[]` the service leaves out the tokens, which saves more than half of the transfer.
        `dtype` is the type used for transfer; arrays are always float32 here. `progress` draws a bar (tqdm).

            answer = client.encode(frame["text"], normalize=True, progress=True)
            answer.embeddings  # (texts, dimensions), float32
        """
        return self._fetch(call_of("/encode", ACCEPT_WHOLE, encoded, locals()))

    def stream_encode(
        self,
        inputs: Inputs,
        *,
        model: str | None = None,
        truncate: bool | None = None,
        truncation_side: Side | None = None,
        prompt_name: str | None = None,
        prompt: str | None = None,
        task: str | None = None,
        columns: Sequence[Column] | None = None,
        interventions: Sequence[Intervention] | None = None,
        outputs: Sequence[Output] | None = None,
        pooling: Pooling | None = None,
        pooling_layers: Indices | None = None,
        normalize: bool | None = None,
        dimensions: int | None = None,
        layers: AllOrIndices | None = None,
        positions: AllOrIndices | None = None,
        precision: Precision | None = None,
        chunks: Chunks | None = None,
        overlap: int | None = None,
        role: Role | None = None,
        top_k: int | None = None,
    ) -> EncodeStreamT:
        """Like `encode`, but yields each item as soon as it is ready, in any order: see `item.index`.

        Results are not kept in memory; one request is in flight at a time. The first is sent when the first
        item is requested; closing the iterator cancels the current one.
        """
        return self._stream(call_of("/encode", ACCEPT_LINES, encoded, locals()))

    def attention(
        self,
        inputs: Inputs,
        *,
        model: str | None = None,
        truncate: bool | None = None,
        truncation_side: Side | None = None,
        prompt_name: str | None = None,
        prompt: str | None = None,
        task: str | None = None,
        columns: Sequence[Column] | None = None,
        interventions: Sequence[Intervention] | None = None,
        layers: AllOrIndices | None = None,
        heads: AllOrIndices | None = None,
        weights: Weights | None = None,
        aggregate: Aggregate | None = None,
        special_tokens: SpecialTokens | None = None,
        level: Level | None = None,
        queries: AllOrIndices | None = None,
        keys: AllOrIndices | None = None,
        renormalize: bool | None = None,
        top_k: int | None = None,
        thumbnail: int | None = None,
        edges: Edges | None = None,
        summary: bool | None = None,
        statistics: Sequence[Statistic] | None = None,
        maps: bool | None = None,
        outputs: Sequence[AttentionOutput] | None = None,
        pooling: Pooling | None = None,
        normalize: bool | None = None,
        dimensions: int | None = None,
        dtype: Literal["float32", "float16", "uint8"] | None = None,
        progress: bool = False,
    ) -> AttentionT:
        """`POST /attention`: maps, (layer, head, query, key) by default.

        `dtype` is the type used to transfer maps; arrays are always float32 here, and the answer's
        `max_error` bounds the error. `progress` draws a bar (tqdm).

            for item in client.attention(texts, layers=[3], heads=[1]):
                item.attention  # (1, 1, tokens, tokens), float32

        With `edges`, the weights of those edges alone: (layers, heads, edges).
        """
        return self._fetch(call_of("/attention", ACCEPT_WHOLE, attention_maps, locals()))

    def stream_attention(
        self,
        inputs: Inputs,
        *,
        model: str | None = None,
        truncate: bool | None = None,
        truncation_side: Side | None = None,
        prompt_name: str | None = None,
        prompt: str | None = None,
        task: str | None = None,
        columns: Sequence[Column] | None = None,
        interventions: Sequence[Intervention] | None = None,
        layers: AllOrIndices | None = None,
        heads: AllOrIndices | None = None,
        weights: Weights | None = None,
        aggregate: Aggregate | None = None,
        special_tokens: SpecialTokens | None = None,
        level: Level | None = None,
        queries: AllOrIndices | None = None,
        keys: AllOrIndices | None = None,
        renormalize: bool | None = None,
        top_k: int | None = None,
        thumbnail: int | None = None,
        edges: Edges | None = None,
        summary: bool | None = None,
        statistics: Sequence[Statistic] | None = None,
        maps: bool | None = None,
        outputs: Sequence[AttentionOutput] | None = None,
        pooling: Pooling | None = None,
        normalize: bool | None = None,
        dimensions: int | None = None,
        decimals: int | None = None,
    ) -> AttentionStreamT:
        """Like `attention`, but yields each item as soon as it is ready, in any order: see `item.index`.

        Numbers are rounded to `decimals`, 6 by default. One request is in flight at a time: the first is sent
        when the first item is requested; closing the iterator cancels the current one.
        """
        return self._stream(call_of("/attention", ACCEPT_LINES, attention_maps, locals()))

    def predict(
        self,
        inputs: Inputs,
        *,
        model: str | None = None,
        truncate: bool | None = None,
        truncation_side: Side | None = None,
        raw_scores: bool | None = None,
        top_k: int | None = None,
        aggregation: Aggregation | None = None,
        attention: Mapping[str, Any] | None = None,
        interventions: Sequence[Intervention] | None = None,
        progress: bool = False,
    ) -> PredictT:
        """`POST /predict`: classes of texts, or of their tokens, with scores.

        `attention` has the options of `attention`, whose maps are then in `item.maps`.

            for item in client.predict(texts, top_k=1):
                item.labels[0].label, item.labels[0].score
        """
        return self._fetch(call_of("/predict", ACCEPT_JSON, predicted, locals()))

    def rerank(
        self,
        query: str,
        texts: Iterable[str],
        *,
        model: str | None = None,
        truncate: bool | None = None,
        truncation_side: Side | None = None,
        top_n: int | None = None,
        return_texts: bool | None = None,
        raw_scores: bool | None = None,
        weights: Sequence[float] | None = None,
        prompt_name: str | None = None,
        prompt: str | None = None,
        attention: Mapping[str, Any] | None = None,
        interventions: Sequence[Intervention] | None = None,
        progress: bool = False,
    ) -> RankT:
        """`POST /rerank`: any number of texts, the best match of a query first.

        for item in client.rerank("Who wrote Hamlet?", texts, top_n=3):
            texts[item.index], item.score
        """
        call = call_of("/rerank", ACCEPT_JSON, ranked, locals(), "texts")
        return self._fetch(replace(call, complete=False, merge=partial(best, top_n=top_n)))

    def similarity(
        self,
        texts: Iterable[str],
        source: str | None = None,
        *,
        model: str | None = None,
        truncate: bool | None = None,
        truncation_side: Side | None = None,
        function: SimilarityFunction | None = None,
        prompt_name: str | None = None,
        prompt: str | None = None,
        task: str | None = None,
        interventions: Sequence[Intervention] | None = None,
    ) -> SimilarityT:
        """`POST /similarity`: compare texts with a source, or with each other if there is none.

        There may be any number of texts. Texts without a source that do not fit into one request are encoded
        in several, and compared here: by `function`, or by default the model's own, which `/info` names.
        Raises ValueError if neither is known.

        client.similarity(texts).similarities  # (texts, texts), float32
        """
        given = {**locals(), "texts": listed(texts, "texts")}
        call = call_of("/similarity", ACCEPT_WHOLE, decoded, given, "texts")
        vectors = None
        if source is None:
            others = {name: value for name, value in given.items() if name not in ("texts", "function")}
            inputs = {**others, "inputs": given["texts"]}
            vectors = replace(call_of("/encode", ACCEPT_WHOLE, encoded, inputs), called="texts")
        return self._fetch(
            SimilarityCall(**vars(call) | {"merge": concatenated}, vectors=vectors, function=function)
        )

    def explain(
        self,
        inputs: Inputs,
        *,
        model: str | None = None,
        truncate: bool | None = None,
        truncation_side: Side | None = None,
        prompt_name: str | None = None,
        prompt: str | None = None,
        task: str | None = None,
        target: str | Mapping[str, Any] | None = None,
        method: Method | None = None,
        unit: Unit | None = None,
        replacement: Replacement | None = None,
        steps: int | None = None,
        faithfulness: bool | None = None,
        interventions: Sequence[Intervention] | None = None,
        function: SimilarityFunction | None = None,
        pooling: Pooling | None = None,
        dimensions: int | None = None,
        progress: bool = False,
    ) -> ExplainT:
        """`POST /explain`: what makes a score, by words, sentences, tokens or heads.

        `target` is "similarity", of the two texts of each pair, a cross-encoder's "score", or an object such
        as `{"label": "joy"}`. In a notebook an item shows its words, coloured.

            (item,) = client.explain([("How old are you?", "What is your age?")])
            item.units.text, item.parts  # (units, units), float32, with the sum item.score
        """
        return self._fetch(call_of("/explain", ACCEPT_WHOLE, explained, locals()))

    def tokenize(
        self,
        inputs: Inputs,
        *,
        model: str | None = None,
        truncate: bool | None = None,
        truncation_side: Side | None = None,
        prompt_name: str | None = None,
        prompt: str | None = None,
        special_tokens: SpecialTokens | None = None,
        progress: bool = False,
    ) -> TokenizeT:
        """`POST /tokenize`: the tokens that the model would run."""
        return self._fetch(call_of("/tokenize", ACCEPT_JSON, tokens_of, locals()))

    def decode(
        self,
        token_ids: Sequence[int] | Sequence[Sequence[int]] | Sequence[IntArray] | IntArray,
        *,
        model: str | None = None,
        skip_special_tokens: bool | None = None,
    ) -> DecodeT:
        """`POST /decode`: the text of each list of token ids."""
        return self._fetch(call_of("/decode", ACCEPT_JSON, decoded, locals(), "token_ids", id_lists))
