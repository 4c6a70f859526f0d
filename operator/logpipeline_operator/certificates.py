"""The managed server's certificate and the authority that signed it: when each is renewed, and in
which order, so that at any moment both sides of a connection trust each other.

Everything is decided from the Secret's files and from the time. A new authority is trusted for
OVERLAP before it signs anything, and the former one for OVERLAP after its last certificate was
replaced.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from logpipeline_operator.children.nats_tls import (
    CA_FILE,
    CA_KEY_FILE,
    CERTIFICATE_FILE,
    KEY_FILE,
    mark,
)

AUTHORITY_LIFE = timedelta(days=3650)
SERVER_LIFE = timedelta(days=365)
# A certificate is renewed after this part of its life: the operator may be down for the rest of it.
RENEW_AFTER = 2 / 3
# Pods may take this long to see a changed ConfigMap, and servers to restart.
OVERLAP = timedelta(days=1)
# Certificates begin earlier by this much: clocks of nodes differ.
BACKDATED = timedelta(hours=1)
PRINT_CHARS = 16

_UNREADABLE = (ValueError, TypeError, KeyError, InvalidSignature, UnsupportedAlgorithm)


class Upkeep(NamedTuple):
    """The *files* as they should be, and why they differ from the former ones; empty if they do
    not.
    """

    files: dict[str, bytes]
    why: str


@dataclass(frozen=True, slots=True)
class _Authority:
    """The authority's *trusted* certificates; the first one signs, with *key*."""

    key: ec.EllipticCurvePrivateKey
    trusted: tuple[x509.Certificate, ...]

    @property
    def signing(self) -> x509.Certificate:
        return self.trusted[0]


@dataclass(frozen=True, slots=True)
class _Server:
    """The server's certificate, its key, and the trusted certificate that signed it."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey
    issuer: x509.Certificate


def upkeep(files: Mapping[str, bytes], names: Sequence[str], now: datetime) -> Upkeep:
    """Return *files* with what is due renewed, for a server with these *names*. Files that cannot
    be read, or do not fit together, are made again.
    """
    authority, server = _authority(files), None
    reasons: list[str] = []
    if authority is None or not _is_valid(authority.signing, now):
        authority = _new_authority(now)
        reasons.append("a new certificate authority, since there was none that can be used")
    else:
        server = _server(files, authority)
        if _is_due(authority.signing, now):
            authority = _new_authority(now, beside=authority.signing)
            reasons.append("a new certificate authority, trusted beside the former one")
    why = _why_new(server, authority, names, now)
    if why:
        server = _new_server(authority, names, now)
        reasons.append(f"a new certificate of the server: {why}")
    assert server is not None
    is_of_new = server.issuer == authority.signing
    has_lasted = now - server.certificate.not_valid_before_utc >= OVERLAP
    if len(authority.trusted) > 1 and is_of_new and has_lasted:
        authority = _Authority(authority.key, (authority.signing,))
        reasons.append("the former certificate authority is no longer trusted")
    return Upkeep(_files(authority, server), "; ".join(reasons))


def mark_of(files: Mapping[str, bytes]) -> str:
    """Return the mark (`nats_tls.mark`) of a server with these *files*; empty if they cannot be
    used.
    """
    held = _held(files)
    if held is None:
        return ""
    authority, server = held
    trusted = tuple(_print(each) for each in authority.trusted)
    return mark(_print(server.issuer), trusted, _print(server.certificate))


def ends(files: Mapping[str, bytes]) -> datetime | None:
    """Return when the first of the certificates in use ends; None if they cannot be used."""
    held = _held(files)
    if held is None:
        return None
    _, server = held
    return min(each.not_valid_after_utc for each in (server.certificate, server.issuer))


def _why_new(
    server: _Server | None, authority: _Authority, names: Sequence[str], now: datetime
) -> str:
    if server is None:
        return "there was none that can be used"
    if not _is_valid(server.certificate, now):
        return "it is not valid now"
    if _names(server.certificate) != set(names):
        return "the server has other names"
    if now - authority.signing.not_valid_before_utc < OVERLAP:
        # Some clients may not trust the new authority yet.
        return ""
    if server.issuer != authority.signing:
        return "it is of the former certificate authority"
    return "it has a third of its life left" if _is_due(server.certificate, now) else ""


def _is_valid(certificate: x509.Certificate, now: datetime) -> bool:
    return certificate.not_valid_before_utc <= now < certificate.not_valid_after_utc


def _is_due(certificate: x509.Certificate, now: datetime) -> bool:
    begin, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    return now >= begin + (end - begin) * RENEW_AFTER


def _authority(files: Mapping[str, bytes]) -> _Authority | None:
    """Return the authority in *files*; None if it cannot sign."""
    try:
        trusted = tuple(x509.load_pem_x509_certificates(files[CA_FILE]))
        key = _key(files[CA_KEY_FILE])
    except _UNREADABLE:
        return None
    return _Authority(key, trusted) if _belongs(key, trusted[0]) else None


def _held(files: Mapping[str, bytes]) -> tuple[_Authority, _Server] | None:
    """Return authority and server in *files*; None if one of both cannot be used."""
    authority = _authority(files)
    server = _server(files, authority) if authority is not None else None
    return (authority, server) if authority is not None and server is not None else None


def _server(files: Mapping[str, bytes], authority: _Authority) -> _Server | None:
    """Return the server's certificate in *files*; None if it is not trusted, or if its key belongs
    to another certificate.
    """
    try:
        certificate = x509.load_pem_x509_certificate(files[CERTIFICATE_FILE])
        key = _key(files[KEY_FILE])
    except _UNREADABLE:
        return None
    issuer = next((each for each in authority.trusted if _is_of(certificate, each)), None)
    if issuer is None or not _belongs(key, certificate):
        return None
    return _Server(certificate, key, issuer)


def _is_of(certificate: x509.Certificate, issuer: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(issuer)
    except _UNREADABLE:
        return False
    return True


def _key(pem: bytes) -> ec.EllipticCurvePrivateKey:
    key = serialization.load_pem_private_key(pem, password=None)
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise TypeError("the key is of another kind than the keys that the operator makes")
    return key


def _belongs(key: ec.EllipticCurvePrivateKey, certificate: x509.Certificate) -> bool:
    return key.public_key() == certificate.public_key()


def _names(certificate: x509.Certificate) -> set[str]:
    try:
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except (x509.ExtensionNotFound, ValueError):
        return set()
    return set(found.value.get_values_for_type(x509.DNSName))


def _new_authority(now: datetime, beside: x509.Certificate | None = None) -> _Authority:
    key = ec.generate_private_key(ec.SECP256R1())
    # Certificate chains are found by these names, so the new one must differ from the former one.
    subject = _name(f"logpipeline CA {secrets.token_hex(4)}")
    made = (
        _begun(subject, subject, key, now, AUTHORITY_LIFE)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .sign(key, hashes.SHA256())
    )
    return _Authority(key, (made,) if beside is None else (made, beside))


def _new_server(authority: _Authority, names: Sequence[str], now: datetime) -> _Server:
    key = ec.generate_private_key(ec.SECP256R1())
    issuer = authority.signing
    signer = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.key.public_key())
    # Servers of a cluster are clients of each other.
    uses = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
    alternatives = x509.SubjectAlternativeName([x509.DNSName(name) for name in names])
    made = (
        _begun(_name("logpipeline nats-server"), issuer.subject, key, now, SERVER_LIFE)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(signer, critical=False)
        .add_extension(x509.ExtendedKeyUsage(uses), critical=False)
        .add_extension(alternatives, critical=False)
        .sign(authority.key, hashes.SHA256())
    )
    return _Server(made, key, issuer)


def _begun(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    now: datetime,
    life: timedelta,
) -> x509.CertificateBuilder:
    begin = now.astimezone(UTC).replace(microsecond=0) - BACKDATED
    public = key.public_key()
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(begin)
        .not_valid_after(begin + life)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
    )


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _files(authority: _Authority, server: _Server) -> dict[str, bytes]:
    pem = serialization.Encoding.PEM
    return {
        CA_FILE: b"".join(each.public_bytes(pem) for each in authority.trusted),
        CA_KEY_FILE: _pem(authority.key),
        CERTIFICATE_FILE: server.certificate.public_bytes(pem),
        KEY_FILE: _pem(server.key),
    }


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def _print(certificate: x509.Certificate) -> str:
    return certificate.fingerprint(hashes.SHA256()).hex()[:PRINT_CHARS]
