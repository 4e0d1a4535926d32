"""What the Dockerfile says twice, and what it repeats of other files, is the same."""

import re
import tomllib

from tests.support.serving import ROOT

DOCKERFILE = (ROOT / "Dockerfile").read_text(encoding="utf-8")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
_STAGE = re.compile(r"^FROM \S+ AS (\S+)\n(.*?)(?=^FROM |\Z)", re.MULTILINE | re.DOTALL)
STAGES: dict[str, str] = dict(_STAGE.findall(DOCKERFILE))


def instructions(stage: str, word: str) -> set[str]:
    """The instructions of one kind, without the ends of their lines; of ENV and LABEL each assignment."""
    joined = STAGES[stage].replace("\\\n", " ")
    found = re.findall(rf"^{word} (.*)$", joined, re.MULTILINE)
    if word in {"ENV", "LABEL"}:
        return {pair for text in found for pair in re.findall(r'[\w.]+=(?:"[^"]*"|\S+)', text)}
    return {" ".join(text.split()) for text in found}


def test_the_image_for_cuda_runs_as_the_others_do() -> None:
    """It has a base of its own, and on it the same user, environment, health check and labels."""
    for word in ("USER", "EXPOSE", "STOPSIGNAL", "HEALTHCHECK", "ENTRYPOINT"):
        assert instructions("gpu", word) == instructions("runtime", word) != set()
    for word in ("ENV", "LABEL"):
        both = instructions("runtime", word) | instructions("cpu", word)
        own = {"HEADLIGHT_DEVICE=cuda"} if word == "ENV" else set()
        assert instructions("gpu", word) == both | own
    (user,) = re.findall(r"groupadd.*?/var/cache/headlight", STAGES["runtime"], re.DOTALL)
    assert user in STAGES["gpu"]


def test_every_image_has_every_label() -> None:
    """What is known when it is built, and what is not."""
    told = {label.partition("=")[0].rpartition(".")[2] for label in instructions("runtime", "LABEL")}
    assert told == {"title", "description", "version", "licenses"}
    for stage in ("cpu", "torch"):
        given = {label.partition("=")[0].rpartition(".")[2] for label in instructions(stage, "LABEL")}
        assert given == {"source", "revision", "created"}


def test_versions_are_those_of_the_project() -> None:
    """The label, and the packages that stand outside of the lock files."""
    assert f'org.opencontainers.image.version="{PROJECT["version"]}"' in DOCKERFILE
    extras = PROJECT["optional-dependencies"]
    (torch,), (minilm,) = extras["torch"], extras["minilm"]
    assert f" {torch} " in STAGES["torch-packages"]
    assert f"--no-deps {minilm}\n" in STAGES["torch-packages"]


def test_the_other_runtime_is_of_the_same_version() -> None:
    """The lock file has the package that the image for CUDA puts another in the place of."""
    lock = (ROOT / "requirements-onnx.lock").read_text(encoding="utf-8")
    assert re.search(r"^onnxruntime==", lock, re.MULTILINE)
    cpu, gpu = (PROJECT["optional-dependencies"][extra][0] for extra in ("cpu", "gpu"))
    assert gpu == cpu.replace("onnxruntime", "onnxruntime-gpu")


def test_nothing_of_this_machine_is_asked_for() -> None:
    """No index is named, and nothing is fetched when the image runs."""
    assert not re.findall(r"https?://", DOCKERFILE)
    assert "HF_HUB_OFFLINE=1" in instructions("runtime", "ENV")
