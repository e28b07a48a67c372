"""Identities for tests: friends, and peers who do not play by the rules."""

from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from coterie.net.certificates import SERVER, certify, key_text, new_key
from coterie.net.identity import Home

LONG_AGO = datetime.now(UTC) - timedelta(days=4000)


def befriend(one: Home, other: Home) -> None:
    one.add(other.card, replace=True)
    other.add(one.card, replace=True)


def wear(home: Home, key: ec.EllipticCurvePrivateKey, certificate: str) -> None:
    """Let a peer use any key and certificate, as one could who does not play by the rules."""
    (home.path / "key.pem").write_text(key_text(key))
    (home.path / "certificate.pem").write_text(certificate)


def named(*names: str, old: bytes = b"", new: bytes = b"") -> tuple[ec.EllipticCurvePrivateKey, str]:
    """A key and a certificate with other names than one, or with other bytes in them, which its owner has signed."""
    key, subject, now = (
        new_key(),
        x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, n) for n in names]),
        datetime.now(UTC),
    )
    made = x509.CertificateBuilder(subject, subject, key.public_key(), 7, now, now + timedelta(days=9))
    for extension in x509.load_pem_x509_certificate(certify(key, "bob").encode()).extensions:
        made = made.add_extension(extension.value, extension.critical)
    inside = made.sign(key, hashes.SHA256()).tbs_certificate_bytes
    assert not old or (len(old) == len(new) and inside.count(old) == 2)
    inside = inside.replace(old, new) if old else inside
    signature = key.sign(inside, ec.ECDSA(hashes.SHA256()))
    whole = inside + bytes.fromhex("300a06082a8648ce3d040302") + bytes([3, len(signature) + 1, 0]) + signature
    der = b"\x30\x82" + len(whole).to_bytes(2) + whole
    return key, x509.load_der_x509_certificate(der).public_bytes(serialization.Encoding.PEM).decode()


def authority(ca: bool = True) -> tuple[ec.EllipticCurvePrivateKey, str]:
    """A key and a certificate that may sign for others, or that at least does not say what its key is for."""
    key, name = new_key(), x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "bob")])
    now = datetime.now(UTC)
    made = x509.CertificateBuilder(name, name, key.public_key(), 7, now - timedelta(days=1), now + timedelta(days=9))
    made = made.add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
    made = made.add_extension(x509.SubjectAlternativeName([x509.DNSName(SERVER)]), critical=False)
    return key, made.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM).decode()
