"""What an owner changes while pods print all the time, on a real Kubernetes: each line is
collected, once, whatever is replaced meanwhile.
"""

from __future__ import annotations

import pytest

from cluster.handle import Cluster
from cluster.healing.site import SPEC, Site, printer, until
from cluster.installed_operator import Operator
from cluster.speech import says_plain
from cluster.workload import collected

pytest_plugins = ["cluster.operator_fixture"]

TEAM = "example.net/team"
BLUE = {"podNamespaceSelector": {"matchLabels": {TEAM: "blue"}}}


@pytest.fixture(scope="module")
def site(cluster: Cluster, operator: Operator, workload_image: str) -> Site:
    """A pipeline whose server began without TLS."""
    nats = {"managed": {"storage": "1Gi", "tls": "Disabled"}}
    made = Site(cluster, operator.new_namespace(), workload_image, SPEC | {"nats": nats})
    made.create()
    return made


@pytest.mark.timeout(900)
async def test_a_server_gets_tls_without_a_line_lost(site: Site) -> None:
    """By way of Optional, where both kinds of client get in, to Required, where only one does."""
    await site.begins()
    answers = {"Disabled": says_plain(site.pipeline)}

    for policy in ("Optional", "Required"):
        site.pipeline.patch({"nats": {"managed": {"tls": policy}}})
        site.pipeline.wait_ready()
        lines = await site.is_collected()
        answers[policy] = says_plain(site.pipeline)

    assert answers == {"Disabled": True, "Optional": True, "Required": False}
    assert site.count(lines) == (0, 0)


@pytest.mark.timeout(900)
async def test_pods_are_read_where_labels_of_their_namespace_say_so(
    cluster: Cluster, operator: Operator, site: Site
) -> None:
    """Those of another namespace are as soon as it gets the label, from their first line on; of
    one that has none, nothing is stored.
    """
    await site.begins()
    node = cluster.nodes[0]
    late, never = operator.new_namespace(), operator.new_namespace()
    for namespace in (late, never):
        cluster.apply(printer("other", namespace, site.image, node))
    label(cluster, site.namespace)
    chosen = {"match": None, "podNamespaces": "Selector", **BLUE}
    site.pipeline.patch({"shippers": chosen})
    site.pipeline.wait_ready()
    await site.is_collected()
    place = f"{node}/{late}/other/main.log"
    before = collected(site.pipeline, place)

    label(cluster, late)
    await until(lambda: collected(site.pipeline, place), "the other namespace's lines")
    lines = await site.is_collected()

    assert before == b""
    assert collected(site.pipeline, place).startswith(b"line 000000000 ")
    assert collected(site.pipeline, f"{node}/{never}/other/main.log") == b""
    assert site.count(lines) == (0, 0)


def label(cluster: Cluster, namespace: str) -> None:
    """Give *namespace* the label that is selected."""
    cluster.kubectl("label", f"namespace/{namespace}", f"{TEAM}=blue")
