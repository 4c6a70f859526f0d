"""When the managed server's certificate and its authority are made anew, and who trusts whom."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509

from cluster.child_manifests import resource
from logpipeline_operator.certificates import (
    AUTHORITY_LIFE,
    OVERLAP,
    SERVER_LIFE,
    Upkeep,
    ends,
    mark_of,
    upkeep,
)
from logpipeline_operator.children import nats_tls
from logpipeline_operator.children.nats_tls import (
    CA_FILE,
    CA_KEY_FILE,
    CERTIFICATE_FILE,
    KEY_FILE,
    cannot_join,
)

NAMES = nats_tls.server_names(resource({}))
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)


def kept(files: dict[str, bytes], after: timedelta = timedelta()) -> Upkeep:
    """What becomes of *files* so long after the beginning."""
    return upkeep(files, NAMES, BEGIN + after)


def test_a_certificate_is_made_once() -> None:
    """What was made is left alone until it is due, and ends after the server's next renewal."""
    made = kept({})

    assert made.why
    assert kept(made.files).why == ""
    assert kept(made.files, SERVER_LIFE / 2).why == ""
    end = ends(made.files)
    assert end is not None
    assert SERVER_LIFE - timedelta(days=1) < end - BEGIN <= SERVER_LIFE


def test_a_certificate_is_renewed_long_before_its_end() -> None:
    """At two thirds of its life the server gets another one, of the same authority."""
    made = kept({})
    renewed = kept(made.files, SERVER_LIFE * 0.67)

    assert "a third of its life" in renewed.why
    assert renewed.files[CERTIFICATE_FILE] != made.files[CERTIFICATE_FILE]
    assert renewed.files[CA_FILE] == made.files[CA_FILE]
    assert kept(renewed.files, SERVER_LIFE * 0.67).why == ""


def test_a_new_authority_is_trusted_before_it_signs_and_the_former_one_after() -> None:
    """In all steps of an authority's renewal, those before and after one trust each other:
    servers restart one by one, and clients see files late.
    """
    due = AUTHORITY_LIFE * 0.667
    steps = [kept(kept({}).files, due - timedelta(hours=48)).files]
    times = [due + OVERLAP * step * 1.1 for step in (0, 0.5, 1, 1.5, 2.2)]
    reasons = []
    for time in times:
        found = kept(steps[-1], time)
        steps.append(found.files)
        reasons.append(found.why)

    assert "beside the former" in reasons[0]
    assert reasons[1] == ""
    assert "of the former certificate authority" in reasons[2]
    assert reasons[3] == ""
    assert "no longer trusted" in reasons[4]
    marks = [mark_of(files) for files in steps]
    assert not any(cannot_join(*pair) for pair in itertools.pairwise(marks))
    assert [len(x509.load_pem_x509_certificates(f[CA_FILE])) for f in steps] == [1, 2, 2, 2, 2, 1]


@pytest.mark.parametrize("file", [CA_FILE, CA_KEY_FILE, CERTIFICATE_FILE, KEY_FILE])
@pytest.mark.parametrize("content", [None, b"", b"garbage", "another"])
def test_what_is_spoilt_is_made_anew(file: str, content: bytes | str | None) -> None:
    """Whichever file of the Secret is gone, holds anything, or belongs to something else, the files
    fit together again afterwards; the authority stays as long as it can sign.
    """
    made = kept({}).files
    other = kept({}).files
    spoilt = {name: text for name, text in made.items() if name != file or content is not None}
    if content is not None:
        spoilt[file] = other[file] if content == "another" else bytes(content)  # type: ignore[arg-type]
    assert mark_of(spoilt) == ""

    healed = kept(spoilt)

    assert healed.why
    assert kept(healed.files).why == ""
    has_new_authority = healed.files[CA_FILE] != made[CA_FILE]
    assert has_new_authority is (file in (CA_FILE, CA_KEY_FILE))


@pytest.mark.parametrize("life", [SERVER_LIFE, AUTHORITY_LIFE])
def test_what_has_ended_is_made_anew_at_once(life: timedelta) -> None:
    """An operator that was away for long does not wait for anybody's trust."""
    healed = kept(kept({}).files, life * 1.1)

    end = ends(healed.files)
    assert end is not None
    assert end > BEGIN + life * 1.1
    assert kept(healed.files, life * 1.1).why == ""


def test_another_name_needs_another_certificate() -> None:
    """A server that is called by another name gets a certificate for it."""
    made = kept({}).files

    assert "other names" in upkeep(made, (*NAMES, "other"), BEGIN).why


def test_servers_that_do_not_trust_each_other_are_apart() -> None:
    """One without TLS, or with a certificate of an authority that the other does not know."""
    one, other = mark_of(kept({}).files), mark_of(kept({}).files)

    assert cannot_join(one, other)
    assert cannot_join(one, "")
    assert cannot_join("", one)
    assert not cannot_join("", "")
    assert not cannot_join(one, one)


@pytest.mark.parametrize(
    ("nats", "began", "found"),
    [
        ({}, True, "Required"),
        ({}, False, "Disabled"),
        ({"managed": {"tls": "Optional"}}, False, "Optional"),
        ({"managed": {"tls": "Disabled"}}, True, "Disabled"),
    ],
)
def test_a_server_that_began_without_goes_on_without(
    nats: dict[str, object], began: bool, found: str
) -> None:
    """TLS is there by default where it was there from the start, and what the resource says
    counts.
    """
    pipeline = nats_tls.decided(resource({"nats": nats}), began_with_tls=began)

    assert pipeline.spec.nats.managed.tls == found
    assert nats_tls.is_on(pipeline) is (found != "Disabled")
