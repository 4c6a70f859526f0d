"""What a LogPipelineClass allows: the table of choices is whole, and decides as it says."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import hypothesis.strategies as st
import pytest
from hypothesis import given

from logpipeline.spec import LogPipeline, SpecError, parse
from logpipeline.spec.admission import policy
from logpipeline.spec.choices import CHOICES, How, allowed_by, is_allowed, refusals
from logpipeline.spec.classes import LogPipelineClass, LogPipelineClassSpec, parse_class
from logpipeline.spec.crd import class_crd, crd
from spec_harmless import HARMLESS

PODS = ("collectors", "shippers", "nats.managed", "table")
SECRET = {"secret": {"name": "prod"}}


def leaves(schema: dict[str, Any], path: str = "") -> Iterator[str]:
    """Yield the path of each field that holds no others, entries of lists as ``[]``."""
    for name, field in schema.get("properties", {}).items():
        place, inner = f"{path}.{name}".lstrip("."), field
        while inner.get("type") == "array":
            place, inner = f"{place}[]", inner["items"]
        if "properties" in inner:
            yield from leaves(inner, place)
        else:
            yield place


def nested(path: str, value: Any) -> dict[str, Any]:
    """The spec that has *value* at *path*."""
    head, _, rest = path.partition(".")
    return {head: nested(rest, value) if rest else value}


def pipeline(spec: dict[str, Any], **metadata: Any) -> LogPipeline:
    """A pipeline as the API server has it."""
    return parse(
        {
            "apiVersion": "logpipeline.dev/v1alpha1",
            "kind": "LogPipeline",
            "metadata": {"name": "p", "namespace": "team-a", **metadata},
            "spec": spec,
        }
    )


def class_of(**spec: Any) -> LogPipelineClass:
    """A class that says *spec* beside the defaults."""
    return parse_class(
        {
            "apiVersion": "logpipeline.dev/v1alpha1",
            "kind": "LogPipelineClass",
            "metadata": {"name": "strict"},
            "spec": spec,
        }
    )


def refused(spec: dict[str, Any], **allowed: Any) -> list[str]:
    """The paths that a class with *allowed* refuses of *spec*."""
    return [each.path for each in refusals(pipeline(spec), class_of(**allowed))]


# What reaches further than its writer: a value at a field, and the class that allows it.
BLUE = {"matchLabels": {"team": "blue"}}
REACHING: list[tuple[str, Any, dict[str, Any]]] = [
    *((f"{pods}.image", "evil/shell:1", {"images": ["evil/*"]}) for pods in PODS),
    *((f"{pods}.serviceAccountName", "operator", {"serviceAccounts": ["*"]}) for pods in PODS),
    *(
        (f"{pods}.env", [{"name": "LD_PRELOAD", "value": "/data/x.so"}], {"env": ["LD_*"]})
        for pods in PODS
    ),
    ("collectors.imagePullSecrets", [{"name": "other"}], {"imagePullSecrets": ["other"]}),
    ("collectors.podLabels", {"app": "bank"}, {"podLabels": ["app"]}),
    ("shippers.podAnnotations", {"a.b/c": "unconfined"}, {"podAnnotations": ["a.b/*"]}),
    ("shippers.nodeSelector", {"role": "master"}, {"nodeLabels": ["role"]}),
    ("collectors.tolerations", [{"operator": "Exists"}], {"tolerations": ["*"]}),
    ("collectors.tolerations", [{"key": "gpu"}], {"tolerations": ["gpu"]}),
    ("collectors.affinity", {"nodeAffinity": {}}, {"affinity": True}),
    ("collectors.priorityClassName", "system-node-critical", {"priorityClasses": ["system-*"]}),
    ("shippers.positionsHostPath", "/root", {"hostPaths": ["/root"]}),
    ("shippers.hostFiles", [{"include": ["/var/lib/kubelet/pods/**"]}],
     {"hostFiles": ["/var/lib/kubelet"]}),
    ("shippers.podNamespaces", "All", {"podNamespaces": "All"}),
    ("shippers", {"podNamespaces": "Selector", "podNamespaceSelector": BLUE},
     {"podNamespaces": "All"}),
    ("collectors.persistence", {"hostPath": "/srv/x"}, {"hostPaths": ["/srv"]}),
    ("collectors.persistence", {"existingClaim": "bank"}, {"claims": ["bank"]}),
    ("collectors.persistence", {"size": "2Ti"}, {"limits": {"storage": "2Ti"}}),
    ("collectors.directory", "/opt/venv", {"directories": ["/opt"]}),
    ("nats.servers", ["nats://evil:4222"], {"natsServers": ["nats://evil:4222"]}),
    ("nats.monitoringUrl", "http://10.0.0.1/", {"monitoringUrls": ["http://10.0.0.1/*"]}),
    ("nats.token", {**SECRET, "token": "password"}, {"secrets": ["prod"]}),
    ("table.s3", SECRET, {"secrets": ["prod"]}),
    ("table.s3", {"endpoint": "http://evil:9000"}, {"s3Endpoints": ["http://evil:9000"]}),
    ("table.path", "s3://others/x", {"tables": ["s3://others/*"]}),
    ("table.catalog", {"py-catalog-impl": "os"}, {"catalogProperties": ["py-*"]}),
    ("table", {"runner": "native", "persistence": {"existingClaim": "c"},
                 "executors": {"instances": 17}},
     {"limits": {"executors": 17}, "claims": ["c"]}),
    ("stream.adopt", True, {"adopt": True}),
    ("partitions", 101, {"limits": {"partitions": 101}}),
]  # fmt: skip


def test_every_field_is_decided_by_a_class_or_harmless_for_a_reason() -> None:
    """A new field is thought about: it stands in the one list or in the other, and in one only."""
    schema = crd()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    fields = set(leaves(schema["properties"]["spec"]))
    decided = {
        field
        for field in fields
        for choice in CHOICES
        if choice.path == field or choice.path.startswith((f"{field}.", f"{field}{{", f"{field}["))
    }
    harmless = {field for names in HARMLESS.values() for field in names}

    assert sorted(fields - decided - harmless) == []
    assert sorted(harmless - fields) == []
    assert sorted(decided & harmless) == []


def test_every_choice_is_a_field_of_the_class() -> None:
    """And each field of a class decides on something."""
    schema = class_crd()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    fields = {path.removesuffix("[]") for path in leaves(schema["properties"]["spec"])}

    # Namespaces that the class selects are those of the pipeline's that are read.
    chosen = {path for path in fields if path.startswith("podNamespaceSelector.")}
    # And one that says what pipelines have, not what they may have.
    others = {"namespaces", "tableByDefault"}
    assert {choice.field for choice in CHOICES} | others | chosen == fields
    for choice in CHOICES:
        allowed_by(LogPipelineClassSpec(), choice.field)


@pytest.mark.parametrize(("path", "value", "allowed"), REACHING)
def test_what_reaches_further_is_refused_unless_the_class_allows_it(
    path: str, value: Any, allowed: dict[str, Any]
) -> None:
    """The refusal names the field, the class, and the class's field."""
    spec = nested(path, value)
    found = refusals(pipeline(spec), class_of())

    assert {each.field.partition(".")[0] for each in found} == set(allowed)
    for each in found:
        assert each.path.startswith(f"spec.{path}")
        assert "LogPipelineClass strict" in str(each)
        assert f"spec.{each.field} allows" in str(each)
    assert refused(spec, **allowed) == []


def test_a_pipeline_with_nothing_special_needs_no_more_than_an_empty_class() -> None:
    """The safest class runs the shortest resource."""
    assert refusals(pipeline({}), class_of()) == []


@pytest.mark.parametrize(
    "include",
    [
        "/var/log/../../root/*",
        "/var/logs/x",
        "/var/log",
        "/var/lo*/x",
        "/var/log*/x",
        "/var/log/*/../../x",
    ],
)
def test_no_path_leads_out_of_the_folder_that_is_allowed(include: str) -> None:
    """Neither by its name nor by `..`, and not to a file of the folder's own name, whose parent
    would be mounted.
    """
    spec = {
        "collectors": {"directory": "/data"},
        "shippers": {"hostFiles": [{"include": [include]}]},
    }
    try:
        given = pipeline(spec)
    except SpecError:
        return  # The resource's own rules refuse it before any class is asked.

    assert refusals(given, class_of(hostFiles=["/var/log"])) != []


def test_a_name_with_a_star_stands_for_what_begins_so() -> None:
    """Without one it is the whole name."""
    spec = {"collectors": {"image": "example.net/logs/collector:1"}}

    assert refused(spec, images=["example.net/logs/*"]) == []
    assert refused(spec, images=["example.net/logs/"]) == ["spec.collectors.image"]
    assert refused(spec, images=["example.net/log"]) == ["spec.collectors.image"]


URLS = {
    "nats.servers": "natsServers",
    "nats.monitoringUrl": "monitoringUrls",
    "table.s3.endpoint": "s3Endpoints",
    "table.catalog": "catalogs",
}


def asking_for(path: str, url: str) -> dict[str, Any]:
    """The spec that names *url*."""
    values: dict[str, Any] = {"nats.servers": [url], "table.catalog": {"uri": url}}
    return nested(path, values.get(path, url))


@pytest.mark.parametrize("path", URLS)
def test_a_url_with_a_star_stands_for_one_host(path: str) -> None:
    """A login before an @ is not taken for the host, whichever program reads the URL."""
    scheme = "nats" if path == "nats.servers" else "http"
    entry = f"{scheme}://a.example.net:*"

    def allows(url: str, *entries: str) -> bool:
        asked = pipeline(asking_for(path, f"{scheme}://{url}"))
        found = refusals(asked, class_of(**{URLS[path]: list(entries)}))
        return URLS[path] not in {each.field for each in found}

    assert allows("a.example.net:4222", entry)
    assert not allows("a.example.net:x@evil.example:4222", entry)
    assert not allows("me@a.example.net:4222", entry)
    assert allows("me@a.example.net:4222", f"{scheme}://me@a.example.net:4222")
    assert not allows("me:x@evil.example:4222", f"{scheme}://me:x@a.example.net:*")
    # Where any host is allowed, a login reaches no further.
    assert allows("me@evil.example:4222", f"{scheme}://*")
    assert allows("me@evil.example:4222", "*")


@given(
    st.from_regex(r"\Anats://[a-z.]{1,5}[:/]\*\Z"),
    st.text(alphabet="ab.:@/\\?#[]%\uff20", max_size=12),
)
def test_no_url_leads_to_another_host_than_its_entry(entry: str, rest: str) -> None:
    """Whatever stands behind the part that the entry gives."""
    url = f"{entry[:-1]}{rest}"
    with contextlib.suppress(ValueError):
        is_other = urlsplit(url).hostname != urlsplit(entry[:-1]).hostname
        assert not (is_other and is_allowed(How.URL, url, (entry,)))


def test_what_is_no_text_where_a_name_belongs_is_refused() -> None:
    """Parts of a resource that are free in form hold anything."""
    spec = {"collectors": {"tolerations": [{"key": 5}]}}

    assert refused(spec, tolerations=["*"]) == ["spec.collectors.tolerations[0].key"]


def test_a_class_is_for_its_namespaces() -> None:
    """Others cannot take it by naming it."""
    assert refused({}, namespaces=["team-*"]) == []
    assert refused({}, namespaces=["logging"]) == ["metadata.namespace"]


def test_taking_over_by_annotation_needs_the_class() -> None:
    """Else it would make somebody's ServiceAccount the pods' own."""
    given = pipeline({}, annotations={"logpipeline.dev/adopt": "true"})

    assert [each.field for each in refusals(given, class_of())] == ["adopt"]
    assert refusals(given, class_of(adopt=True)) == []


@pytest.mark.parametrize(
    "spec",
    [
        {"images": ["a*b"]},
        {"hostFiles": ["var/log"]},
        {"image": "x"},
        {"limits": {"storage": "x"}},
        {"podNamespaces": "Selector"},
        {"podNamespaceSelector": {"matchLabels": {"team": "blue"}}},
        {"podNamespaces": "Selector", "podNamespaceSelector": {"matchLabels": {"team": "?"}}},
    ],
)
def test_a_class_with_mistakes_is_no_class(spec: dict[str, Any]) -> None:
    """It is told, rather than read as if it allowed something."""
    with pytest.raises(SpecError):
        class_of(**spec)


def test_the_policy_decides_on_every_choice() -> None:
    """What the operator refuses, the API server refuses before."""
    messages = [each["messageExpression"] for each in policy()["spec"]["validations"]]

    assert len(messages) == len(CHOICES) + 2
    for choice in CHOICES:
        assert any(f"spec.{choice.path}: " in text for text in messages)
