"""ONE frozen Settings, read once from the environment and the command line."""

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, SecretStr, ValidationError, ValidationInfo, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from model.checkpoints.source import EMBEDDED
from service.flags import parse_flags
from service.setting_help import is_found_out, refusal
from service.setting_values import Networks, parse_keys, parse_models, parse_origins, parse_proxies

PREFIX = "HEADLIGHT_"
_DEVICE = re.compile(r"auto|cpu|cuda|cuda:\d+")


class SettingsError(Exception):
    """Settings that cannot be; the message says in one sentence which and what to change."""


class Settings(BaseSettings):
    """Serve transformer encoders over HTTP: embeddings and per-head attention maps."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX,
        frozen=True,
        extra="forbid",
        protected_namespaces=(),
    )

    host: Annotated[str, Field(min_length=1)] = Field("127.0.0.1", description="address to listen on")
    port: int = Field(8000, ge=0, le=65535, description="port to listen on; 0 takes a free one")
    model: str = Field(
        EMBEDDED,
        description="a folder, a hub name, or several as name=source,name=source; the first is the default",
    )
    backend: Literal["auto", "torch", "onnx"] = Field(
        "auto", description="what runs the model; auto: onnx for an exported folder, torch for a checkpoint"
    )
    device: str = Field(
        "auto", description="auto, cpu, cuda or cuda:N; auto: CUDA where there is a device of it"
    )
    tensorrt: bool = Field(default=False, description="run ONNX graphs through TensorRT on CUDA devices")
    native: Literal["on", "off"] = Field(
        "on", description="kernels of our own, where the processor runs them"
    )
    dtype: Literal["auto", "float32", "bfloat16", "float16", "int8"] = Field(
        "auto",
        description="precision of the products; auto: bfloat16 on CUDA and where our CPU kernels run in it",
    )
    threads: int | None = Field(None, ge=1, description="cores that the model uses; auto: all")
    max_batch_tokens: int | None = Field(
        None, ge=1, description="token budget of one batch; auto: 1024 on a CPU"
    )
    max_queue_tokens: int | None = Field(
        None, ge=1, description="tokens that may wait; beyond, 429; auto: four largest requests"
    )
    max_inputs: int = Field(256, ge=1, description="texts per request")
    max_body_bytes: int = Field(2 * 2**20, ge=1, description="size of a request body")
    max_response_bytes: int = Field(64 * 2**20, ge=1, description="size of an answer")
    memory_bytes: int | None = Field(
        None,
        ge=2**26,
        description="memory of the process; what its control group may have, or the machine has, by default",
    )
    request_timeout_s: float = Field(30.0, gt=0, le=86_400, description="seconds until a request is given up")
    drain_timeout_s: float = Field(
        30.0, gt=0, le=86_400, description="seconds to answer what is accepted at exit"
    )
    keep_alive_s: float = Field(
        75.0, gt=0, le=86_400, description="seconds until an idle connection is closed"
    )
    api_keys: SecretStr | None = Field(None, description="keys that open the service, separated by commas")
    api_keys_file: Path | None = Field(
        None, description="a file of such keys, one per line; read again when it changes"
    )
    cors_origins: str | None = Field(
        None, description="origins whose pages may ask from a browser, separated by commas, or *"
    )
    trusted_proxies: str | None = Field(
        None,
        description="proxies whose X-Forwarded-For is believed: addresses, networks, separated by commas",
    )
    traces: Literal["off", "otlp"] = Field(
        "off", description="otlp sends a trace of each request, as the variables OTEL_… say"
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field("info", description="what is logged")
    log_format: Literal["text", "json"] = Field("text", description="text, or one JSON object per line")

    @field_validator("*", mode="before")
    @classmethod
    def _auto(cls, value: object, info: ValidationInfo) -> object:
        """Take "auto" for the default of what is found out at the start."""
        field = cls.model_fields[str(info.field_name)]
        return None if value == "auto" and is_found_out(field) else value

    @field_validator("device")
    @classmethod
    def _known_device(cls, value: str) -> str:
        if not _DEVICE.fullmatch(value):
            raise ValueError("it must be auto, cpu, cuda, or cuda:N with the number of a device")
        return value

    @field_validator("model")
    @classmethod
    def _readable_models(cls, value: str) -> str:
        parse_models(value)
        return value

    @field_validator("api_keys")
    @classmethod
    def _some_keys(cls, value: SecretStr | None) -> SecretStr | None:
        """Refuse an empty value, most often a secret that did not arrive: it must not open the door."""
        if value is not None and not parse_keys(value.get_secret_value()):
            raise ValueError("it holds no key; unset it to serve everybody")
        return value

    @field_validator("api_keys_file", mode="before")
    @classmethod
    def _some_file(cls, value: object) -> object:
        if value == "":
            raise ValueError("it names no file; unset it to serve everybody")
        return value

    @field_validator("cors_origins")
    @classmethod
    def _readable_origins(cls, value: str | None) -> str | None:
        parse_origins(value)
        return value

    @field_validator("trusted_proxies")
    @classmethod
    def _readable_proxies(cls, value: str | None) -> str | None:
        parse_proxies(value)
        return value

    @property
    def keys(self) -> frozenset[str]:
        """The keys that are given in the settings themselves."""
        return frozenset() if self.api_keys is None else parse_keys(self.api_keys.get_secret_value())

    @property
    def origins(self) -> list[str]:
        """The origins that may ask from a browser."""
        return parse_origins(self.cors_origins)

    @property
    def proxies(self) -> Networks:
        """The proxies whose X-Forwarded-For is believed."""
        return parse_proxies(self.trusted_proxies)

    @property
    def models(self) -> dict[str, str]:
        """The served models: name -> source, the default first."""
        return parse_models(self.model)


def read_settings(arguments: Sequence[str] = ()) -> Settings:
    """Read the environment and command-line arguments (which win); raises SettingsError."""
    try:
        return Settings(**parse_flags(arguments, Settings.model_fields, PREFIX))  # type: ignore[arg-type]
    except ValidationError as error:
        sentences = [refusal(each, Settings.model_fields, PREFIX) for each in error.errors()]
        raise SettingsError(" ".join(sentences)) from error


def unknown_variables(environment: Mapping[str, str] = os.environ) -> list[str]:
    """List environment variables that look like settings and are none: most often a slip of the hand."""
    known = {PREFIX + name.upper() for name in Settings.model_fields}
    return sorted(name for name in environment if name.startswith(PREFIX) and name not in known)
