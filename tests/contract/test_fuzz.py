"""The service against its own schema: generated requests, right and wrong ones, to every route."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.backends import both_backends
from tests.support.serving import Service

pytestmark = [both_backends, pytest.mark.thorough]

# The ONE exception to schemathesis' own checks: a request that fits the schema may still be refused with 422,
# because JSON Schema cannot say the rules between fields (an option without effect, both prompts, an index
# that this model or input does not have) and with 404, because a model's name is any string. In
# the protocol of text-embeddings-inference an empty text is a 400, and what the model cannot do a 424.
CONFIGURATION = """
[checks.positive_data_acceptance]
expected-statuses = ["2xx", 400, 404, 422, 424]
"""


def test_the_service_keeps_its_own_contract(service: Service, tmp_path: Path) -> None:
    """No 5xx, no undocumented status or content type, no answer that its schema does not describe."""
    (tmp_path / "schemathesis.toml").write_text(CONFIGURATION, encoding="utf-8")
    answered = 'headlight_requests_total{{kind="inference",route="{}",status="200"}}'
    before = service.metrics()
    ended = subprocess.run(
        [
            *(sys.executable, "-m", "schemathesis.cli", "--config-file", "schemathesis.toml", "--no-color"),
            *("run", f"{service.url}/openapi.json", "--checks", "all"),
            *("--phases", "examples,coverage,fuzzing", "--max-examples", "40", "--seed", "20"),
            *("--generation-database", "none", "--request-timeout", "20", "--continue-on-failure"),
        ],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout[-8000:] + ended.stderr[-2000:]
    assert re.search(r"Operations: +57 selected / 57 total", ended.stdout)
    cases = re.search(r"(\d+) generated, (\d+) passed", ended.stdout)
    assert cases, ended.stdout
    assert int(cases[1]) == int(cases[2]) > 300
    after = service.metrics()
    for route in ("/encode", "/attention"):
        name = answered.format(route)
        assert after[name] - before[name] >= 10, "refusing everything would keep the contract as well"
