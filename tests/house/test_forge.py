"""What a forge reads is valid, and runs what developers run."""

import re
import subprocess
import sys
from typing import Any

import pytest
import yaml

from service.lifecycle import VERSION
from tests.support.serving import ROOT

SCHEMAS = {
    "github-workflows": ".github/workflows/*.yml",
    "dependabot": ".github/dependabot.yml",
    "github-issue-config": ".github/ISSUE_TEMPLATE/config.yml",
    "github-issue-forms": ".github/ISSUE_TEMPLATE/[!c]*.yml",
    "citation-file-format": "CITATION.cff",
}
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")


def read(name: str) -> Any:
    """A YAML file of the repository."""
    return yaml.safe_load((ROOT / name).read_text(encoding="utf-8"))


def targets() -> set[str]:
    """The targets of the Makefile that have no file."""
    (listed,) = re.findall(r"^\.PHONY: (.+)$", MAKEFILE, flags=re.MULTILINE)
    return {*listed.split()}


@pytest.mark.parametrize("schema", SCHEMAS)
def test_files_keep_to_their_schema(schema: str) -> None:
    """The schemas are those that check-jsonschema brings: nothing is fetched."""
    files = sorted(ROOT.glob(SCHEMAS[schema]))
    assert files
    command = [
        sys.executable,
        "-m",
        "check_jsonschema",
        "--builtin-schema",
        f"vendor.{schema}",
        *map(str, files),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_workflow_runs_what_developers_run() -> None:
    """It tests with `make test`, builds wheels and images, and names no target that is not there."""
    jobs = read(".github/workflows/test.yml")["jobs"]
    steps = [step["run"] for job in jobs.values() for step in job["steps"] if "run" in step]
    called = {target for step in steps for target in re.findall(r"\bmake ([\w-]+)", step)}
    assert {"test", "wheel", "image"} <= called <= targets()
    stages = set(re.findall(r"^FROM \S+ AS (\w+)$", (ROOT / "Dockerfile").read_text(encoding="utf-8"), re.M))
    assert set(jobs["images"]["strategy"]["matrix"]["target"]) <= stages
    for name in ("wheels", "images"):  # each on a machine of its own kind
        runners = jobs[name]["strategy"]["matrix"]["runner"]
        assert {one.endswith("-arm") for one in runners} == {False, True}, "x86-64 and ARM64"


def test_a_commit_is_checked_as_make_does() -> None:
    """The hooks of pre-commit are the commands of `make check`, with the versions of its environment."""
    ((hooks,),) = [[repo["hooks"]] for repo in read(".pre-commit-config.yaml")["repos"]]
    assert all(hook["language"] == "system" for hook in hooks)
    (recipe,) = re.findall(r"^check: .+\n((?:\t.+\n)+)", MAKEFILE, flags=re.MULTILINE)
    commands = [
        # What follows a failure is for machines that are too busy, such as those of CI.
        line.strip().partition(" || ")[0].replace("$(BIN)", ".venv/bin").removesuffix(" .")
        for line in recipe.splitlines()
    ]
    assert [hook["entry"] for hook in hooks] == commands


def test_a_bug_comes_with_what_is_needed() -> None:
    """The form asks for the output of `headlight check`, and does without no field that is always there."""
    fields = {field["id"]: field for field in read(".github/ISSUE_TEMPLATE/bug.yml")["body"]}
    assert "`headlight check`" in fields["check"]["attributes"]["label"]
    assert fields["check"]["validations"]["required"]


def test_the_version_to_cite_is_this_one() -> None:
    """`make version` sets it with all others."""
    assert read("CITATION.cff")["version"] == VERSION


def test_editors_are_told_what_ruff_is() -> None:
    """The length of a line of Python is the same in both."""
    (width,) = re.findall(
        r"^line-length = (\d+)$", (ROOT / "pyproject.toml").read_text(encoding="utf-8"), re.M
    )
    text = (ROOT / ".editorconfig").read_text(encoding="utf-8")
    assert f"max_line_length = {width}" in text.partition("[*.{py,cpp,h}]")[2].partition("[*.md]")[0]
