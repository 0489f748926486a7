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


ERROR = """
from vllm_omni_errors import OmniErrorDetails, metrics
from prometheus_client import REGISTRY

def count(*given, transport="http", **more):
    metrics.count_error(OmniErrorDetails(*given, **more), transport)

def show():
    for family in REGISTRY.collect():
        for sample in family.samples:
            if sample.name == "omni_errors_total":
                print(*(sample.labels[name] or "-" for name in metrics.ERROR_LABELS), int(sample.value))
"""


def test_errors_are_counted_by_what_the_client_saw() -> None:
    code = """
count("no", "client", 404, "NotFoundError")
count("no", "client", 404, "NotFoundError")
count("no", "server", 500, "InternalServerError", stage_id=1, fatal=True, transport="sse")
metrics.count_cancelled("http")
show()
"""
    assert run(ERROR + code).splitlines() == [
        "http client NotFoundError 404 - false 2",
        "sse server InternalServerError 500 1 true 1",
        "http cancelled - - - false 1",
    ]


def test_what_a_client_or_a_stage_names_makes_no_new_series() -> None:
    code = """
for number in range(200):
    count("no", "client", 400, f"Type{number}", stage_id=1000 + number)
    count("no", "client", 400, "BadRequestError", stage_id=-1 - number)
show()
"""
    assert run(ERROR + code).splitlines() == [
        "http client other 400 other false 200",
        "http client BadRequestError 400 other false 200",
    ]


def test_counting_errors_without_prometheus_client_fails_nothing() -> None:
    hidden = "import sys\nsys.modules['prometheus_client'] = None\n" + ERROR.replace(
        "from prometheus_client import REGISTRY\n", ""
    )
    assert run(hidden + 'count("no", "client", 404, "NotFoundError")\nprint("went on")') == "went on"
