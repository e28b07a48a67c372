"""Identities for tests: friends, and peers who do not play by the rules."""

from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from coterie.net.certificates import SERVER, key_text, new_key
from coterie.net.identity import Home

LONG_AGO = datetime.now(UTC) - timedelta(days=4000)


def befriend(one: Home, other: Home) -> None:
    one.add(other.card, replace=True)
    other.add(one.card, replace=True)


def wear(home: Home, key: ec.EllipticCurvePrivateKey, certificate: str) -> None:
    """Let a peer use any key and certificate, as one could who does not play by the rules."""
    (home.path / "key.pem").write_text(key_text(key))
    (home.path / "certificate.pem").write_text(certificate)


def authority(ca: bool = True) -> tuple[ec.EllipticCurvePrivateKey, str]:
    """A key and a certificate that may sign for others, or that at least does not say what its key is for."""
    key, name = new_key(), x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "bob")])
    now = datetime.now(UTC)
    made = x509.CertificateBuilder(name, name, key.public_key(), 7, now - timedelta(days=1), now + timedelta(days=9))
    made = made.add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
    made = made.add_extension(x509.SubjectAlternativeName([x509.DNSName(SERVER)]), critical=False)
    return key, made.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM).decode()
