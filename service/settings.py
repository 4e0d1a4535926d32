"""One frozen Settings object, read once from the environment and the command line."""

import logging
import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, SecretStr, ValidationError, ValidationInfo, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from model.checkpoints.source import EMBEDDED
from model.choices import Dtype, Kind
from service.flags import flag, parse_flags
from service.setting_help import is_automatic, refusal
from service.setting_values import (
    Networks,
    parse_hosts,
    parse_keys,
    parse_models,
    parse_origins,
    parse_protocols,
    parse_proxies,
)

PREFIX = "HEADLIGHT_"
MOST_EMBEDDINGS = 2048
"""The most texts in a request to `/v1/embeddings`, unless `max_inputs` is set; OpenAI's limit is the same."""
PATIENCE_S = 30.0
"""How long the service waits for clients by default, in seconds."""
_READ_BY: Mapping[str, Callable[[str], object]] = {
    "host": parse_hosts,
    "model": parse_models,
    "protocols": parse_protocols,
    "cors_origins": parse_origins,
    "trusted_proxies": parse_proxies,
}
"""Setting that holds a list -> its parser, which raises ValueError."""
_DEVICE = re.compile(r"auto|cpu|cuda|cuda:\d+")


class SettingsError(Exception):
    """Invalid settings; the message names each one and says what to change."""


class Settings(BaseSettings):
    """Serve transformer encoders over HTTP: embeddings and per-head attention maps."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX,
        frozen=True,
        extra="forbid",
        protected_namespaces=(),
    )

    host: Annotated[str, Field(min_length=1)] = Field(
        "127.0.0.1", description="addresses to listen on, separated by commas; :: is all"
    )
    port: int = Field(8000, ge=0, le=65535, description="port to listen on; 0 picks a free one")
    model: str = Field(
        EMBEDDED,
        description="a folder, a hub name, or several as name=source,name=source; the first is the default",
    )
    backend: Kind = Field(
        "auto", description="what runs the model; auto: onnx for an exported folder, torch for a checkpoint"
    )
    device: str = Field("auto", description="auto, cpu, cuda or cuda:N; auto: CUDA if available")
    native: Literal["on", "off"] = Field(
        "on", description="use the native kernels for checkpoints if the processor supports them"
    )
    strict: Literal["on", "off"] = Field(
        "off", description="refuse a model whose files have keys that the service does not know"
    )
    dtype: Dtype = Field(
        "auto",
        description="precision of matrix products; auto: graphs as exported, checkpoints in bfloat16 on CUDA "
        "and on CPUs where it is faster, otherwise in float32; int8: for checkpoints on CPUs with AVX2, "
        "AVX-512 or ARM64's dot products",
    )
    threads: int | None = Field(None, ge=1, description="cores that the model uses; auto: all")
    processes: int | None = Field(
        None,
        ge=1,
        le=256,
        description="processes that serve; auto: one per core on a CPU, 1 with a CUDA device",
    )
    max_batch_tokens: int | None = Field(
        None,
        ge=1,
        description="token budget of a batch; auto: 1024 on a CPU, 8192 on CUDA, 4096 for graphs on CUDA",
    )
    max_queue_tokens: int | None = Field(
        None,
        ge=1,
        description="tokens in the queue, beyond which requests get a 429; auto: four largest requests",
    )
    max_inputs: int = Field(
        256, ge=1, description="maximum number of texts per request; 2048 on /v1/embeddings if not set"
    )
    max_body_bytes: int = Field(2 * 2**20, ge=1, description="maximum size of a request body")
    max_response_bytes: int = Field(64 * 2**20, ge=1, description="maximum size of a response")
    memory_bytes: int | None = Field(
        None,
        ge=2**26,
        description="memory limit of the process; auto: the limit of its cgroup, or the machine's memory",
    )
    request_timeout_s: float | None = Field(
        None,
        gt=0,
        le=86_400,
        description="seconds until a request times out; auto: 30, or twice what the longest text takes",
    )
    start_timeout_s: float = Field(600.0, gt=0, le=86_400, description="seconds that startup may take")
    drain_timeout_s: float = Field(
        30.0, gt=0, le=86_400, description="seconds to answer accepted requests at shutdown"
    )
    keep_alive_s: float = Field(
        75.0, gt=0, le=86_400, description="seconds until an idle connection is closed"
    )
    api_keys: SecretStr | None = Field(None, description="API keys to accept, separated by commas")
    api_keys_file: Path | None = Field(
        None, description="file of API keys, one per line; reread when it changes"
    )
    protocols: str = Field(
        "all", description="other servers' protocols to serve: all, none, or names separated by commas"
    )
    explorer: Literal["on", "off"] = Field("on", description="serve the explorer, a page, at /explorer")
    cors_origins: str | None = Field(
        None, description="origins whose pages may call the API, separated by commas, or *"
    )
    trusted_proxies: str | None = Field(
        None,
        description="proxies whose X-Forwarded-For is trusted: addresses or networks, separated by commas",
    )
    traces: Literal["off", "otlp"] = Field(
        "off", description="otlp exports a trace of each request, configured by the OTEL_… variables"
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field("info", description="lowest level to log")
    log_refusals: Literal["debug", "info", "warning"] = Field(
        "info", description="level of the log lines of refused requests, whose status is 4xx"
    )
    log_format: Literal["text", "json"] = Field("text", description="text, or one JSON object per line")

    @field_validator("*", mode="before")
    @classmethod
    def _auto(cls, value: object, info: ValidationInfo) -> object:
        """Accept "auto" for a default that is determined at startup."""
        field = cls.model_fields[str(info.field_name)]
        return None if value == "auto" and is_automatic(field) else value

    @field_validator(*_READ_BY)
    @classmethod
    def _readable(cls, value: str | None, info: ValidationInfo) -> str | None:
        if value is not None:
            _READ_BY[str(info.field_name)](value)
        return value

    @field_validator("device")
    @classmethod
    def _known_device(cls, value: str) -> str:
        if not _DEVICE.fullmatch(value):
            raise ValueError("it must be auto, cpu, cuda, or cuda:N with a device number")
        return value

    @field_validator("api_keys")
    @classmethod
    def _some_keys(cls, value: SecretStr | None) -> SecretStr | None:
        """Reject an empty value, usually a secret that was not mounted: it must not disable the check."""
        if value is not None and not parse_keys(value.get_secret_value()):
            raise ValueError("it contains no key; unset it to serve without keys")
        return value

    @field_validator("api_keys_file", mode="before")
    @classmethod
    def _some_file(cls, value: object) -> object:
        if value == "":
            raise ValueError("it does not name a file; unset it to serve without keys")
        return value

    def inputs_of(self, most: int | None) -> int:
        """Return how many inputs a request may have: `most`, unless that is None or `max_inputs` was set."""
        return self.max_inputs if most is None or self._limits_inputs else most

    @property
    def _limits_inputs(self) -> bool:
        return "max_inputs" in self.model_fields_set

    @property
    def most_inputs(self) -> int:
        """How many inputs a request may have on the served route that takes the most."""
        embeds = not self.other_protocols.isdisjoint(("openai", "tei"))
        return MOST_EMBEDDINGS if embeds and not self._limits_inputs else self.max_inputs

    @property
    def patience_s(self) -> float:
        """How long clients may take to send a head or a body, and to read on, in seconds."""
        return self.request_timeout_s or PATIENCE_S

    @property
    def keys(self) -> frozenset[str]:
        """The keys given in the settings themselves."""
        return frozenset() if self.api_keys is None else parse_keys(self.api_keys.get_secret_value())

    @property
    def secured(self) -> bool:
        """Whether requests need an API key."""
        return self.api_keys is not None or self.api_keys_file is not None

    @property
    def hosts(self) -> list[str]:
        """The addresses to listen on."""
        return parse_hosts(self.host)

    @property
    def other_protocols(self) -> frozenset[str]:
        """The protocols that are served besides the native one."""
        return parse_protocols(self.protocols)

    @property
    def origins(self) -> list[str]:
        """The origins whose pages may call the API."""
        return parse_origins(self.cors_origins)

    @property
    def proxies(self) -> Networks:
        """The proxies whose X-Forwarded-For is trusted."""
        return parse_proxies(self.trusted_proxies)

    @property
    def level_of_refusals(self) -> int:
        """The level at which refused requests are logged, as a number."""
        return logging.getLevelNamesMapping()[self.log_refusals.upper()]

    @property
    def models(self) -> dict[str, str]:
        """The served models: name -> source, the default first."""
        return parse_models(self.model)


VARIABLES = {f"{PREFIX}{name.upper()}": name for name in Settings.model_fields}
"""The settings by their environment variables."""


def read_settings(arguments: Sequence[str] = ()) -> Settings:
    """Read the environment and the command line, which takes precedence; raises SettingsError."""
    given = parse_flags(arguments, Settings.model_fields, PREFIX)
    called = {name: flag(name) if name in given else variable for variable, name in VARIABLES.items()}
    try:
        return Settings(**given)  # type: ignore[arg-type]
    except ValidationError as error:
        sentences = [refusal(each, Settings.model_fields, called) for each in error.errors()]
        raise SettingsError(" ".join(sentences)) from error


def unknown_variables(environment: Mapping[str, str] = os.environ) -> list[str]:
    """List environment variables with our prefix that are not settings, usually typos."""
    return sorted(name for name in environment if name.startswith(PREFIX) and name not in VARIABLES)
