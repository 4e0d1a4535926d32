"""What a load takes, worked out as docs/scaling.md says."""

import subprocess
import sys

import pytest

from benchmarks.planning.capacity import LENGTHS, MEASURED, need
from tests.support.serving import ROOT


def test_replicas_carry_the_peak_at_the_utilisation_that_was_asked_for() -> None:
    """86.4 million texts a day are 1000 a second: of 20 tokens, at a peak of 3, 5 replicas of 20,000/s."""
    needed = need(86.4e6, 20, 20_000, peak=3, utilisation=0.6)
    assert needed.mean == pytest.approx(1000)
    assert needed.peak == pytest.approx(3000)
    assert needed.replicas == 5
    assert needed.with_spare == 6
    assert need(86.4e6, 20, 19_999, peak=3, utilisation=0.6).replicas == 6, "replicas are whole"
    assert need(1, 16, 20_000, peak=3, utilisation=0.6).replicas == 1, "somebody has to be there"


def test_every_kind_was_measured_at_every_length() -> None:
    """No row of the table is missing."""
    assert all(set(kind.rates) == set(LENGTHS) for kind in MEASURED.values())


@pytest.mark.thorough
def test_the_table_of_the_document_is_what_the_program_prints() -> None:
    """benchmarks/planning/capacity.md shows the output of the program, line by line."""
    command = [sys.executable, "-m", "benchmarks.planning.capacity"]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=True)
    assert ran.stdout.strip() in (ROOT / "benchmarks/planning/capacity.md").read_text(encoding="utf-8")


@pytest.mark.thorough
def test_own_rates_take_the_place_of_the_measured_ones() -> None:
    """`--rate`, `--texts`, `--peak` and `--utilisation` are what is worked with."""
    options = ["--texts", "86.4e6", "--peak", "1", "--utilisation", "0.5", "--rate", "100=50000"]
    ran = subprocess.run(
        [sys.executable, "-m", "benchmarks.planning.capacity", *options, "--cores", "8", "--memory", "1000"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert ran.stdout.splitlines()[-1].split() == ["given", "100", "4", "5", "40", "5.0"]
