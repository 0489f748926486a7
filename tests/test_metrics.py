# SPDX-License-Identifier: Apache-2.0
"""Each test is another process's registry, as `prometheus_client` would be there."""

import subprocess
import sys
from pathlib import Path

import pytest

COUNT = """
from vllm_omni_errors import metrics
metrics.count_broken_record("decode")
metrics.count_broken_record("decode")
metrics.count_broken_record("encode")
"""
SHOW = """
from prometheus_client import REGISTRY
print([REGISTRY.get_sample_value("omni_error_broken_records_total", {"where": each}) for each in ("decode", "encode")])
"""


def run(code: str, **environment: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.strip()


def test_broken_records_are_counted_by_place() -> None:
    assert run(COUNT + SHOW) == "[2.0, 1.0]"


def test_nothing_is_made_before_it_is_needed() -> None:
    assert run("import sys, vllm_omni_errors.wire\nprint('prometheus_client' in sys.modules)") == "False"


def test_without_prometheus_client_nothing_is_counted_and_nothing_fails() -> None:
    assert run("import sys\nsys.modules['prometheus_client'] = None\n" + COUNT + "print('went on')") == "went on"


@pytest.mark.parametrize("name", ["omni_error_broken_records", "omni_error_broken_records_total"])
def test_a_counter_of_the_same_kind_that_is_there_is_used(name: str) -> None:
    made = f"import prometheus_client\nprometheus_client.Counter('{name}', 'Ours, of another copy', ['where'])\n"
    assert run(made + COUNT + SHOW) == "[2.0, 1.0]"


@pytest.mark.parametrize(
    "taken",
    [
        "Counter('omni_error_broken_records_total', 'Other labels', ['place'])",
        "Gauge('omni_error_broken_records_total', 'No counter', ['where'])",
    ],
)
def test_a_name_that_something_else_has_is_left_to_it(taken: str) -> None:
    code = f"import prometheus_client\nprometheus_client.{taken}\n" + COUNT + SHOW
    assert run(code) == "[None, None]"


def test_a_directory_that_cannot_be_written_is_no_reason_to_fail(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    assert run(COUNT + "print('went on')", PROMETHEUS_MULTIPROC_DIR=str(file)) == "went on"


def test_vllm_does_not_unregister_the_counter() -> None:
    """``vllm/v1/metrics/prometheus.py`` removes every collector that has "vllm" in its name."""
    assert "vllm" not in run("from vllm_omni_errors import metrics\nprint(metrics.BROKEN_RECORDS)")
