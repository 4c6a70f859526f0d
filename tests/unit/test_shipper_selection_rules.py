"""What is shipped is decided by the resource, before a file is opened, and never by an accident."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logpipeline.spec.components import Match, PodSelector
from logpipeline_shipper.files.listing import ChainFile, Listing, SourceId
from logpipeline_shipper.files.source_filter import (
    METADATA_WAIT_S,
    SIDECAR_CONTAINER,
    Container,
    Decision,
    Labels,
    Metadata,
    Rules,
    Ship,
    Skip,
    SourceFilter,
    Unknown,
    decide,
    decide_by_path,
)
from logpipeline_shipper.kubernetes import pods
from logpipeline_shipper.kubernetes.pods import PodCache

WEB = Container(namespace="shop", pod="web-1", uid="u1", name="app")
NOT_SELECTED = Skip("not-selected")


def select(**selector: object) -> Match:
    return Match(select=PodSelector(**selector))  # type: ignore[arg-type]


def exclude(**selector: object) -> Match:
    return Match(exclude=PodSelector(**selector))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("matches", "expected"),
    [
        ((), Ship()),
        ((exclude(namespaces=("kube-system",)),), Ship()),
        ((exclude(namespaces=("shop",)),), NOT_SELECTED),
        ((select(namespaces=("bank",)),), NOT_SELECTED),
        ((select(namespaces=("bank", "shop")),), Ship()),
        ((exclude(container_names=("app",)), select()), NOT_SELECTED),
        ((select(container_names=("app",)), exclude()), Ship()),
        ((select(namespaces=("shop",), container_names=("other",)),), NOT_SELECTED),
        ((exclude(labels={"tier": "web"}),), NOT_SELECTED),
        ((exclude(labels={"tier": "web", "more": "1"}),), Ship()),
        ((select(labels={"tier": "web"}),), Ship()),
        ((select(labels={"tier": "db"}),), NOT_SELECTED),
    ],
)
def test_the_first_entry_that_fits_decides(matches: tuple[Match, ...], expected: Decision) -> None:
    """Where none fits, whoever lists what to take wants nothing else."""
    metadata = Metadata(labels={"tier": "web"})

    assert decide(WEB, metadata, Rules(matches=matches)) == expected


def test_the_annotation_is_stronger_than_any_entry() -> None:
    """Whoever runs a pod has the last word on its lines."""
    rules = Rules(matches=(select(),))

    assert decide(WEB, Metadata(is_excluded=True), rules) == Skip("excluded-by-annotation")


@pytest.mark.parametrize("component", ["collector-0", "shipper-x2k9d", "nats-0"])
def test_our_own_components_are_not_shipped_in_a_circle(component: str) -> None:
    """By the pod's name alone, without asking anybody; another's pod of such a name is shipped."""
    rules = Rules(namespace="logging", pipeline="prod", matches=(select(),))
    pod = Container(namespace="logging", pod=f"prod-{component}", uid="u", name="main")
    elsewhere = Container(namespace="shop", pod=f"prod-{component}", uid="u", name="main")

    assert decide(pod, None, rules) == Skip("own-component")
    assert decide(pod, Metadata(labels={"app": "other"}), rules) == Ship()
    assert decide(pod, Metadata(labels={"logpipeline.dev/pipeline": "prod"}), rules) == Skip(
        "own-component"
    )
    assert decide_by_path(elsewhere, rules) == Ship()


def test_pods_of_other_namespaces_are_left_where_only_the_own_is_read() -> None:
    """By the path alone, whatever the entries say, and without waiting for Kubernetes."""
    own_only = frozenset({"logging"})
    rules = Rules(namespace="logging", only=own_only, matches=(select(namespaces=("shop",)),))
    everything = replace(rules, matches=())
    own = Container(namespace="logging", pod="web-1", uid="u", name="main")
    other = Container(namespace="shop", pod="web-1", uid="u", name="main")

    assert decide(other, None, rules) == Skip("other-namespace")
    assert decide_by_path(other, everything) == Skip("other-namespace")
    assert decide_by_path(own, rules) == Skip("not-selected")
    assert decide_by_path(own, everything) == Ship()


def test_an_injected_sidecar_is_not_shipped() -> None:
    """Its lines are about what it ships."""
    sidecar = Container(namespace="shop", pod="web-1", uid="u1", name=SIDECAR_CONTAINER)

    assert decide_by_path(sidecar, Rules()) == Skip("own-component")


def test_lines_carry_the_labels_that_were_asked_for() -> None:
    """In the order of the resource; a label that the pod lacks is left out."""
    metadata = Metadata(labels={"app": "web", "team": "blue", "hash": "1"})

    assert decide(WEB, metadata, Rules(labels=("team", "none", "app"))) == Ship(
        (("team", "blue"), ("app", "web"))
    )


NAMES = st.sampled_from(("a", "b"))
SELECTORS = st.builds(
    PodSelector,
    namespaces=st.lists(NAMES, max_size=2).map(tuple),
    labels=st.dictionaries(NAMES, NAMES, max_size=2),
    container_names=st.lists(NAMES, max_size=1).map(tuple),
)
MATCHES = st.one_of(
    st.builds(lambda each: Match(select=each), SELECTORS),
    st.builds(lambda each: Match(exclude=each), SELECTORS),
)
CONTAINERS = st.builds(Container, namespace=NAMES, pod=NAMES, uid=NAMES, name=NAMES)


@given(
    container=CONTAINERS,
    matches=st.lists(MATCHES, max_size=4).map(tuple),
    labels=st.dictionaries(NAMES, NAMES, max_size=2),
)
def test_what_is_decided_without_metadata_stands_whatever_they_are(
    container: Container, matches: tuple[Match, ...], labels: dict[str, str]
) -> None:
    """Only "unknown" can be overturned; and no source is lost that some metadata would take."""
    rules = Rules(matches=matches)
    early = decide(container, None, rules)
    late = decide(container, Metadata(labels=labels), rules)

    assert isinstance(early, Unknown) or early == late
    if isinstance(late, Ship):
        assert decide_by_path(container, rules) == Ship()


class Told:
    """What a gate let through, and took back."""

    def __init__(self, rules: Rules, pod_cache: PodCache | None) -> None:
        self.now_s = 0.0
        self.taken: list[tuple[str, int, Labels]] = []
        self.left: list[str] = []
        self.source_filter = SourceFilter(
            rules, pod_cache, on_ship=self._take, on_skip=self._leave, clock=lambda: self.now_s
        )
        if pod_cache is not None:
            pod_cache.listeners.pod = self.source_filter.changed
            pod_cache.listeners.namespace = self.source_filter.changed_namespace

    def _take(self, listing: Listing, how: Ship) -> None:
        self.taken.append((listing.id.source, len(listing.files), how.labels))

    def _leave(self, id: SourceId) -> None:
        self.left.append(id.source)


SOURCE = SourceId(
    host="n", source="shop/web-1/u1/app/0", format="cri", namespace="shop", pod="web-1",
    container="app",
)  # fmt: skip


def listing(id: SourceId = SOURCE, *, files: int = 1) -> Listing:
    return Listing(id, tuple(ChainFile(Path(f"/{n}.log"), 1, n, 10, 0, None) for n in range(files)))


def pod(uid: str = "u1", *, exclude: bool = False, **labels: str) -> dict[str, object]:
    annotations = {"logpipeline.dev/exclude": "true"} if exclude else {}
    return {
        "metadata": {
            "uid": uid, "name": "web-1", "namespace": "shop", "labels": labels,
            "annotations": annotations,
        }
    }  # fmt: skip


def test_an_unknown_pod_waits_until_it_is_known() -> None:
    """And goes on with its labels in the same moment."""
    pod_cache = PodCache()
    pod_cache.replace_namespaces([])
    told = Told(Rules(labels=("app",)), pod_cache)
    told.source_filter.update(listing())
    before = list(told.taken)
    pod_cache.put_pod(pod(app="web"))

    assert before == []
    assert told.taken == [(SOURCE.source, 1, (("app", "web"),))]
    assert told.source_filter.waiting() == 0


def test_nobody_waits_longer_than_a_few_seconds() -> None:
    """With the API server away, the path decides, and lines flow."""
    told = Told(Rules(matches=(select(labels={"app": "web"}),)), PodCache())
    told.source_filter.update(listing())
    told.now_s = METADATA_WAIT_S - 0.1
    told.source_filter.tick()
    before = list(told.taken)
    told.now_s = METADATA_WAIT_S
    told.source_filter.tick()

    assert before == []
    assert told.taken == [(SOURCE.source, 1, ())]
    assert told.source_filter.by_path_alone == 1


def test_an_exclusion_that_comes_late_stops_reading() -> None:
    """And when it is taken away, reading goes on, with the files as they are then."""
    pod_cache = PodCache()
    pod_cache.replace_namespaces([])
    pod_cache.put_pod(pod())
    told = Told(Rules(), pod_cache)
    told.source_filter.update(listing())
    pod_cache.put_pod(pod(exclude=True))
    left = list(told.left)
    told.source_filter.update(listing(files=2))
    pod_cache.put_pod(pod())

    assert left == [SOURCE.source]
    assert told.taken == [(SOURCE.source, 1, ()), (SOURCE.source, 2, ())]
    assert told.source_filter.left_out == {"excluded-by-annotation": 0}


def test_a_namespace_excludes_its_pods() -> None:
    """Also those that are read already; other namespaces go on."""
    pod_cache = PodCache()
    pod_cache.put_pod(pod())
    told = Told(Rules(), pod_cache)
    told.source_filter.update(listing())
    waiting = told.source_filter.waiting()
    pod_cache.replace_namespaces([])
    namespace = {"metadata": {"name": "shop", "annotations": {"logpipeline.dev/exclude": "true"}}}
    pod_cache.put_namespace(namespace)

    assert waiting == 1
    assert told.taken == [(SOURCE.source, 1, ())]
    assert told.left == [SOURCE.source]
    assert told.source_filter.left_out == {"excluded-by-annotation": 1}


def test_an_excluded_pod_is_never_taken_and_forgotten_when_it_goes() -> None:
    """Nothing of it reaches whoever opens files, and nothing of it stays."""
    pod_cache = PodCache()
    pod_cache.put_pod(pod(exclude=True))
    told = Told(Rules(), pod_cache)
    told.source_filter.update(listing())
    told.source_filter.update(listing(files=0))
    pod_cache.put_pod(pod())

    assert told.taken == []
    assert told.source_filter.left_out == {"excluded-by-annotation": 0}


def test_a_pod_that_is_gone_is_known_for_its_last_files() -> None:
    """A file that is found after its pod was deleted keeps the pod's labels."""
    pod_cache = PodCache()
    pod_cache.replace_namespaces([])
    pod_cache.put_pod(pod(app="web"))
    pod_cache.remove_pod(pod())
    told = Told(Rules(labels=("app",)), pod_cache)
    told.source_filter.update(listing())

    assert told.taken == [(SOURCE.source, 1, (("app", "web"),))]


def test_a_decision_stands_when_its_pod_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ignorance never overturns what was known."""
    monkeypatch.setattr(pods, "GONE_PODS_MAX", 0)
    pod_cache = PodCache()
    pod_cache.put_pod(pod(exclude=True))
    told = Told(Rules(), pod_cache)
    told.source_filter.update(listing())
    pod_cache.replace_pods([])
    told.now_s = 10 * METADATA_WAIT_S
    pod_cache.replace_namespaces([])

    assert told.taken == []


def test_namespaces_that_are_no_longer_read_are_left_and_come_back() -> None:
    """A pod of one that is read again waits for what Kubernetes says of it, as at first."""
    pod_cache = PodCache()
    pod_cache.do_without_namespaces()
    pod_cache.put_pod(pod(app="web"))
    told = Told(Rules(only=frozenset()), pod_cache)
    told.source_filter.update(listing())
    at_first = (list(told.taken), told.source_filter.namespaces())
    told.source_filter.read_only(frozenset({"shop"}))
    then = (list(told.taken), told.source_filter.namespaces())
    told.source_filter.read_only(frozenset({"bank"}))
    pod_cache.replace_pods([], "shop")
    left = (list(told.left), dict(told.source_filter.left_out), told.source_filter.namespaces())
    newcomer = SourceId(
        host="n", source="shop/new/u9/app/0", format="cri", namespace="shop", pod="new",
        container="app",
    )  # fmt: skip
    told.source_filter.update(listing(newcomer))
    told.source_filter.read_only(frozenset({"shop"}))

    assert at_first == ([], set())
    assert then == ([(SOURCE.source, 1, ())], {"shop"})
    assert left == ([SOURCE.source], {"other-namespace": 1}, set())
    assert [source for source, *_ in told.taken] == [SOURCE.source] * 2
    assert told.source_filter.waiting() == 1
    assert told.source_filter.left_out == {"other-namespace": 0}


def test_plain_files_pass_without_a_question() -> None:
    """Files of the node belong to no pod."""
    told = Told(Rules(matches=(exclude(),)), PodCache())
    plain = SourceId(host="n", source="/var/log/syslog", format="plain")
    told.source_filter.update(listing(plain))

    assert told.taken == [("/var/log/syslog", 1, ())]


def test_a_static_pod_is_found_by_the_name_of_its_folder() -> None:
    """kubelet names the folder after the hash of the pod's file, not after the API's uid."""
    pod_cache = PodCache()
    pod_cache.replace_namespaces([])
    mirror = pod("other", app="etcd")
    mirror["metadata"]["annotations"] = {"kubernetes.io/config.mirror": "u1"}  # type: ignore[index]
    pod_cache.replace_pods([mirror])

    assert pod_cache.find(WEB, is_last=False) == Metadata(labels={"app": "etcd"})
