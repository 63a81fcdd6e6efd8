"""What the page of metrics says of the process and of the program."""

from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from lognode.node.metrics import Metrics


def families() -> dict[str, dict[str, float]]:
    """The samples of a new node's page, by family and name of the sample."""
    metrics = Metrics()
    metrics.watch_process()
    page = generate_latest(metrics.registry).decode()
    return {
        family.name: {sample.name: sample.value for sample in family.samples}
        for family in text_string_to_metric_families(page)
    }


def test_the_page_names_the_program_and_has_the_use_of_the_process() -> None:
    found = families()
    (build,) = (samples for name, samples in found.items() if name.startswith("lognode_build"))
    assert build == {"lognode_build_info": 1.0}
    assert found["process_resident_memory_bytes"]["process_resident_memory_bytes"] > 1_000_000
    assert found["process_cpu_seconds"]["process_cpu_seconds_total"] > 0
    assert found["process_open_fds"]["process_open_fds"] >= 3


def test_a_counter_is_one_series() -> None:
    """With the time of its creation each counter had two series."""
    names = {name for samples in families().values() for name in samples}
    assert not [name for name in names if name.endswith("_created")]
