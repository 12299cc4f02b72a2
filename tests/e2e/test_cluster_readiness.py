"""A node says whether the database answers, so that a balancer sends it no work that it cannot store."""

from collections.abc import Callable
from pathlib import Path

import httpx2
import pytest

from given.cluster import Node, open_cluster, wait_until
from given.http_server import prompt
from given.postgres import get_server
from given.postgres_proxy import run_postgres_proxy

pytestmark = pytest.mark.slow

# How long the probes in `deploy/` wait for an answer. A later answer does not count.
PROBE_SECONDS = 4
READY = (200, '{"ready":true,"reasons":[]}')
NOT_READY = (503, '{"ready":false,"reasons":["StoreError: nothing can be stored"]}')


def probe(node: Node, path: str = "/weft/ready") -> tuple[int, str]:
    try:
        answer = httpx2.get(f"{node.url}{path}", timeout=PROBE_SECONDS)
    except httpx2.TransportError as error:
        return 0, str(error)
    return answer.status_code, answer.text


def wait_for_metrics(node: Node, *, of_cluster: bool) -> None:
    def has_them() -> bool:
        status, figures = probe(node, "/weft/metrics")
        return (
            status == 200 and "weft_ending 0" in figures and ("weft_cluster_nodes" in figures) is of_cluster
        )

    wait_until(has_them, "metrics")


def check_absence(node: Node, *, leave: Callable[[], None], come_back: Callable[[], None]) -> None:
    """Check what a node reports while its database is unreachable, and afterwards."""
    session = node.make_session()
    wait_until(lambda: probe(node) == READY, "a node that is ready")
    leave()
    wait_until(lambda: probe(node) == NOT_READY, "a node that is not ready")
    # It is alive all the same: restarting it would not help.
    assert node.get("/global/health")["healthy"] is True
    wait_for_metrics(node, of_cluster=False)
    come_back()
    wait_until(lambda: probe(node) == READY, "a node that is ready again")
    node.post(f"/session/{session}/message", prompt("hello"))
    assert node.read_texts(session) == ["hello", "You said: hello"]
    wait_for_metrics(node, of_cluster=True)


def test_a_node_is_not_ready_while_postgres_is_stopped(tmp_path: Path) -> None:
    with open_cluster(tmp_path, {}) as cluster:
        node = cluster.start("a")
        check_absence(node, leave=get_server().stop, come_back=get_server().start)
        assert "not ready: StoreError" in "\n".join(node.process.noted)


def test_a_node_is_not_ready_while_postgres_does_not_answer(tmp_path: Path) -> None:
    with open_cluster(tmp_path, {}) as cluster, run_postgres_proxy(cluster.url) as (proxy, loop):
        check_absence(
            cluster.start("a", url=proxy.url),
            leave=lambda: loop.call_soon_threadsafe(proxy.answers.clear) and None,
            come_back=lambda: loop.call_soon_threadsafe(proxy.answers.set) and None,
        )
