"""The objects of the protocol: requests and responses, and their parts."""

from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, BeforeValidator, Field, StrictBool, StrictInt, StrictStr
from pydantic_core import PydanticCustomError

from service.http.request_schema import RequestSchema
from service.protocols.fields import PositiveNumber, at_most
from service.protocols.lenient import Fields

# More than there are inputs or outputs: a longer list is refused without reading all of it.
_MOST_TENSORS = 16

Parameters = dict[str, Any]


def _whole(value: object) -> object:
    """Refuse a whole number that is written as a float, as Triton does; the error says so."""
    if isinstance(value, float) and value.is_integer():
        message = f"must be an integer, but {value} is written as a float: leave out the fraction"
        raise PydanticCustomError("invalid", "{message}", {"message": message})
    return value


Length = Annotated[StrictInt, Field(ge=0), BeforeValidator(_whole)]


class TensorParameters(Fields):
    """How a tensor is sent."""

    binary_data_size: Length | None = Field(
        None, description="The size in bytes of this input after the JSON, instead of `data`."
    )
    binary_data: StrictBool = Field(default=False, description="Return this output as bytes after the JSON.")
    shared_memory_region: Any = Field(None, description="Not supported.")
    classification: Any = Field(None, description="Not supported.")


Shape = Annotated[list[Length], Field(max_length=_MOST_TENSORS), at_most(_MOST_TENSORS)]


class InputTensor(Fields):
    """One input."""

    name: StrictStr = Field(description="`text`, `text_pair`, `input_ids` or `attention_mask`.")
    shape: Shape = Field(description="[texts], or [texts, tokens] of ids.")
    datatype: StrictStr = Field(description="`BYTES` of texts, `INT64` of ids.")
    parameters: TensorParameters = Field(default_factory=TensorParameters)
    data: list[Any] | None = Field(None, description="The values in order, flat or in nested lists.")


class RequestedOutput(Fields):
    """One output to return."""

    name: StrictStr = Field(description="`embedding`.")
    parameters: TensorParameters = Field(default_factory=TensorParameters)


class InferenceParameters(Fields):
    """Options of a request. Others, which clients reserve, are ignored."""

    normalize: StrictBool | None = Field(
        None, description="Scale each vector to unit L2 norm, or not; by default as the model does."
    )
    truncate: StrictBool = Field(
        default=True, description="Cut texts that are longer than the model's limit; `false` refuses them."
    )
    dimensions: PositiveNumber | None = Field(None, description="Keep the first k components, renormalized.")
    prompt_name: StrictStr | None = Field(
        None, description="One of the model's prompts; its default prompt by default."
    )
    binary_data_output: StrictBool = Field(
        default=False, description="Return the outputs as bytes after the JSON, if `outputs` names none."
    )


class IndexRequest(Fields):
    """What `/v2/repository/index` may be asked for. Unknown fields are ignored."""

    example: ClassVar[str] = '{"ready": true}'

    ready: StrictBool = Field(default=False, description="List only models that are ready, which all are.")


class InferenceRequest(Fields, RequestSchema):
    """Texts, or token ids, to encode as one vector each. Unknown fields are ignored."""

    example: ClassVar[str] = (
        '{"inputs": [{"name": "text", "datatype": "BYTES", "shape": [1], "data": ["a text"]}]}'
    )

    id: StrictStr | None = Field(None, description="Returned as it is.")
    parameters: InferenceParameters = Field(default_factory=InferenceParameters, description="Options.")
    inputs: Annotated[
        list[InputTensor], Field(min_length=1, max_length=_MOST_TENSORS), at_most(_MOST_TENSORS)
    ] = Field(
        description="`text` (BYTES, [n]), alone or with `text_pair`; or `input_ids` (INT64, [n, tokens]), "
        "alone or with `attention_mask`, whose zeros mark padding.",
    )
    outputs: Annotated[list[RequestedOutput], Field(max_length=_MOST_TENSORS), at_most(_MOST_TENSORS)] = (
        Field(default_factory=list, description="Outputs to return; all by default.")
    )


class OutputTensor(BaseModel):
    """One output."""

    name: Literal["embedding"]
    datatype: Literal["FP32"]
    shape: list[int]
    parameters: Parameters | None = Field(
        None, description="`binary_data_size`, the bytes of this output after the JSON, instead of `data`."
    )
    data: list[float] | None = Field(None, description="The values in order, flat.")


class InferenceResponse(BaseModel):
    """The outputs of a model."""

    model_name: str
    model_version: str
    id: str | None = Field(None, description="The id of the request.")
    parameters: Parameters | None = Field(
        None, description="`truncated_inputs`: the number of truncated texts, if any."
    )
    outputs: list[OutputTensor]
