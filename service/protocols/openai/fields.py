"""The fields of `/v1/embeddings`: OpenAI's, Jina's and Voyage's, which do not contradict each other."""

from typing import Annotated, Any, ClassVar, Literal

from pydantic import (
    BeforeValidator,
    Field,
    PlainValidator,
    StrictBool,
    StrictStr,
    ValidationInfo,
    WithJsonSchema,
    model_validator,
)

from model.tokenization.tokenizer import Side, Truncation
from service.http.request_schema import SEVERAL
from service.protocols.decoding import check_counts
from service.protocols.fields import (
    MAX_IDS,
    Listed,
    MostTokens,
    PositiveNumber,
    WholeNumber,
    invalid,
    text_of,
)
from service.protocols.lenient import CUT_AND_NOT, TRUNCATION_SIDE, Asked, agree, cut_to
from service.protocols.texts_or_ids import TEXTS_OR_IDS, TextOrIds, texts_or_ids
from service.settings import MOST_EMBEDDINGS
from service.tasks.embed import EmbedOptions
from service.tasks.precision import Precision

OVERLAP: Any = Field(
    None,
    ge=0,
    description="Parts that are together too long for the model are read in windows. How many tokens each "
    "window repeats from the previous one; by default a quarter of a window.",
)
_WINDOWS_ONLY = (
    "applies only to windows, which need late_chunking and neither truncate nor truncate_prompt_tokens: "
    "leave it out"
)
_JOIN = "join some of them, or send the text to /encode with `chunks`"
Encoding = Literal["float", "base64"]
Numbers = Literal["float", "int8", "uint8", "binary", "ubinary"]


def _input(value: object, info: ValidationInfo) -> Listed[TextOrIds]:
    """Read a text, the ids of one, or a list of either; a text may be an object with `text`, as for Jina."""
    if isinstance(value, list):
        value = list(map(text_of, value)) if dict in set(map(type, value)) else value
    else:
        value = text_of(value)
    if value == []:
        raise invalid("input", "must not be empty")
    listed = texts_or_ids(value, info)
    empty = next((i for i, one in enumerate(listed.inputs) if not one and not isinstance(one, str)), None)
    if empty is not None:
        raise invalid(f"input.{empty}", "is an empty list: send a text, or at least one token id")
    return listed


def _only(value: object, info: ValidationInfo) -> object:
    """Read a type, which may be the only item of a list."""
    if value == []:
        raise invalid(str(info.field_name), "is an empty list: send one type")
    if isinstance(value, list) and len(value) > 1:
        detail = f"has {len(value)} types and the limit is 1: send a request for each type"
        raise invalid(str(info.field_name), detail)
    return value[0] if isinstance(value, list) else value


_Type = Literal["float", "base64", "int8", "uint8", "binary", "ubinary"]
Input = Annotated[Listed[TextOrIds], PlainValidator(_input), WithJsonSchema(TEXTS_OR_IDS)]
OneType = Annotated[_Type, BeforeValidator(_only)]
# The fields that name a type of numbers; those of Jina may also be `base64`.
_TYPES = ("output_dtype", "embedding_type", "encoding_type")
_JINA_TYPE = "Jina's name for `output_dtype`, and for `encoding_format` if `base64`."


class EmbeddingsRequest(Asked):
    """Texts, or token ids, to encode as one vector each. Unknown fields are ignored."""

    listed: ClassVar[str] = "input"
    example: ClassVar[str] = '{"input": "a text"}'
    most_numbers: ClassVar[int] = MAX_IDS
    most_inputs: ClassVar[int] = MOST_EMBEDDINGS

    input: Input = Field(
        description="A text, the token ids of one, or a list of either. Ids run as they are, including "
        "special tokens."
    )
    encoding_format: Encoding = Field(
        "float", description="`base64` is the bytes of the numbers, floats as float32, little-endian."
    )
    dimensions: PositiveNumber | None = Field(None, description="Keep the first k components, renormalized.")
    output_dimension: PositiveNumber | None = Field(None, description="Voyage's name for `dimensions`.")
    output_dtype: Numbers = Field("float", description="Like `precision` of `/encode`.")
    embedding_type: OneType | None = Field(None, description=_JINA_TYPE)
    encoding_type: OneType | None = Field(None, description=_JINA_TYPE)
    normalized: StrictBool = Field(default=True, description="Scale each vector to unit L2 norm.")
    truncate: StrictBool | None = Field(
        None,
        description="Truncate texts longer than the model's limit (the default); `false` refuses them. The "
        "response's header `X-Truncated-Inputs` counts truncated texts. With `late_chunking`, texts are "
        "truncated only if this is `true`: by default they are read in windows.",
    )
    truncation: StrictBool | None = Field(None, description="Voyage's name for `truncate`.")
    truncate_prompt_tokens: MostTokens | None = Field(
        None,
        description="vLLM's: run only the last k tokens of each text, including special tokens; the first k "
        "if `truncation_side` is `right`; -1 is the model's limit.",
    )
    truncation_side: Side | None = TRUNCATION_SIDE
    late_chunking: StrictBool = Field(
        default=False,
        description="The texts are parts of one text, which runs as a whole; each part's vector is the mean "
        "of its tokens.",
    )
    overlap: WholeNumber | None = OVERLAP
    input_type: StrictStr | None = Field(
        None, description="What the texts are for, such as `query` or `document`: chooses the model's prompt."
    )
    task: StrictStr | None = Field(
        None,
        description="Jina's name for `input_type`, such as `retrieval.query`; also chooses the model's "
        "adapter.",
    )
    prompt_name: StrictStr | None = Field(None, description="One of the model's prompts.")

    @model_validator(mode="after")
    def _agree(self) -> "EmbeddingsRequest":
        agree(self.sent("dimensions", "output_dimension"))
        agree(self.sent("truncate", "truncation"))
        if self.truncate_prompt_tokens is not None and False in (self.truncate, self.truncation):
            raise invalid("truncate_prompt_tokens", CUT_AND_NOT)
        # `base64` is not a type of numbers: it may stand beside one, but not beside the form "float".
        types = self.sent(*_TYPES)
        agree({name: kind for name, kind in types.items() if kind != "base64"})
        if self.overlap is not None and not (self.late_chunking and self.windowed):
            raise invalid("overlap", _WINDOWS_ONLY)
        form = self.sent("encoding_format") if self.encoding_format == "float" else {}
        agree(form | {name: kind for name, kind in types.items() if kind == "base64"})
        return self

    def check(self, count: int, limit: int) -> None:
        """Raise a problem if too many inputs (`count`) were sent."""
        way_out = _JOIN if self.late_chunking else SEVERAL
        check_counts(self.input, count, limit, self.listed, way_out)

    def options(self) -> EmbedOptions:
        """Return the options of the vectors that are asked for."""
        size = self.dimensions if self.dimensions is not None else self.output_dimension
        return EmbedOptions(normalize=self.normalized, dimensions=size, precision=self.precision)

    @property
    def names(self) -> dict[str, str]:
        """Option of a task -> the name that it has in the request."""
        size = "output_dimension" if self.dimensions is None and self.output_dimension else "dimensions"
        numbers = [name for name in _TYPES if getattr(self, name) not in (None, "float", "base64")]
        return {
            "dimensions": size,
            "normalize": "normalized",
            "precision": next(iter(numbers), "output_dtype"),
            "chunks": "late_chunking",
        }

    @property
    def cuts(self) -> Truncation:
        """Whether and where texts may be truncated."""
        allowed = self._said_of_cuts is not False
        return cut_to(self.truncate_prompt_tokens, self.truncation_side, allowed=allowed)

    @property
    def windowed(self) -> bool:
        """Whether parts that are too long together are read in windows."""
        return self._said_of_cuts is None and self.truncate_prompt_tokens is None

    @property
    def _said_of_cuts(self) -> bool | None:
        return self.truncate if self.truncate is not None else self.truncation

    @property
    def cutting(self) -> str:
        """What to change so that too long a text is cut."""
        return f'leave out "{"truncation" if self.truncate is None else "truncate"}": false'

    @property
    def base64(self) -> bool:
        """Whether vectors are written as bytes."""
        return "base64" in (self.encoding_format, self.embedding_type, self.encoding_type)

    @property
    def precision(self) -> Precision:
        """The type of the numbers."""
        asked = (getattr(self, name) for name in _TYPES)
        return next((one for one in asked if one not in (None, "float", "base64")), "float32")
