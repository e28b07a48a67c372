"""The certificates of peers: self-signed, each its own root of trust, and none able to sign for another."""

from datetime import UTC, datetime, timedelta
from functools import lru_cache
from hashlib import sha256

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from coterie.errors import PeerError

SERVER = "coterie-peer"
"""The host in every certificate. TLS wants one; who is meant the certificate itself tells, so addresses may change."""
LIFETIME = timedelta(days=3652)
SKEW = timedelta(days=1)
ASK = "Ask its owner for the file that `coterie peer init` or `coterie peer rotate` wrote."
LEAKED = "Who could read it can pose as its owner, who should make another with `coterie peer rotate`."

_ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
"""How many points the curve P-256 has."""
_ALGORITHM = bytes.fromhex("300a06082a8648ce3d040302")
"""ECDSA with SHA-256, as it stands in a certificate before the signature."""
_UNUSED = ["content_commitment", "key_encipherment", "data_encipherment", "key_agreement"]
_UNUSED += ["key_cert_sign", "crl_sign", "encipher_only", "decipher_only"]


def new_key() -> ec.EllipticCurvePrivateKey:
    """A fresh private key."""
    return ec.generate_private_key(ec.SECP256R1())


def key_text(key: ec.EllipticCurvePrivateKey) -> str:
    """A private key as PEM."""
    form = (serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return key.private_bytes(serialization.Encoding.PEM, *form).decode()


def certify(key: ec.EllipticCurvePrivateKey, name: str, now: datetime | None = None) -> str:
    """A self-signed certificate, as PEM, for ten years from yesterday, since clocks differ."""
    begin = (now or datetime.now(UTC)) - SKEW
    made = _builder(name, key.public_key(), x509.random_serial_number(), begin, begin + LIFETIME)
    return _plain(made.sign(key, hashes.SHA256()))


def _builder(
    name: str, public: ec.EllipticCurvePublicKey, serial: int, begin: datetime, end: datetime
) -> x509.CertificateBuilder:
    """All of a certificate but its signature."""
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    made = x509.CertificateBuilder(subject, subject, public, serial, begin, end)
    for extension, critical in _extensions(public):
        made = made.add_extension(extension, critical)
    return made


def one_time(secret: bytes) -> tuple[str, str]:
    """Key and certificate, as PEM, that follow from a secret alone: who has it makes the same ones, bit by bit.

    No wall clock is asked, so that clocks may differ; whoever trusts the certificate knows for how long.
    """
    stream = HKDF(hashes.SHA256(), 48, None, b"coterie ticket").derive(secret)  # 128 bits more than needed: no bias
    key = ec.derive_private_key(int.from_bytes(stream) % (_ORDER - 1) + 1, ec.SECP256R1())
    public = key.public_key()
    name = sha256(key_bytes(public)).hexdigest()[:32]
    made = _builder(name, public, 1, datetime(2000, 1, 1, tzinfo=UTC), datetime(2200, 1, 1, tzinfo=UTC))
    return key_text(key), _plain(made.sign(key, hashes.SHA256(), ecdsa_deterministic=True))


def key_bytes(key: ec.EllipticCurvePublicKey) -> bytes:
    """A public key's plain bytes."""
    return key.public_bytes(serialization.Encoding.X962, serialization.PublicFormat.UncompressedPoint)


def sign(key: bytes, what: bytes) -> bytes:
    """The signature of a private key (PEM)."""
    private = serialization.load_pem_private_key(key, None)
    assert isinstance(private, ec.EllipticCurvePrivateKey)
    return private.sign(what, ec.ECDSA(hashes.SHA256()))


def signed(certificate: str, proof: bytes, what: bytes) -> bool:
    """Whether the owner of a certificate that `checked` has seen signed this."""
    public = parsed(certificate).public_key()
    assert isinstance(public, ec.EllipticCurvePublicKey)
    try:
        public.verify(proof, what, ec.ECDSA(hashes.SHA256()))
    except InvalidSignature:
        return False
    return True


def _extensions(key: ec.EllipticCurvePublicKey) -> list[tuple[x509.ExtensionType, bool]]:
    """What the certificate of this key is for, and which of it is critical.

    TLS takes a leaf for an issuer if only nothing says that its key signs no certificates: the key's usage says so.
    """
    usage = x509.KeyUsage(digital_signature=True, **dict.fromkeys(_UNUSED, False))
    return [
        (x509.BasicConstraints(ca=False, path_length=None), True),
        (usage, True),
        (x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]), False),
        (x509.SubjectAlternativeName([x509.DNSName(SERVER)]), False),
        (x509.SubjectKeyIdentifier.from_public_key(key), False),
        (x509.AuthorityKeyIdentifier.from_issuer_public_key(key), False),
    ]


def checked(text: str) -> str:
    """A certificate somebody gave us in its plain form, if it is one that `certify` could have made.

    Plain, because whatever else stands in the text would become a root of trust as well; and of this make alone,
    because the owner of one that may sign could let others in. Bit by bit, because gRPC reads it again, stricter: at
    one that it cannot read, such as one whose name is not UTF-8, it stops, and trusts none of those that come after.
    """
    if "PRIVATE KEY" in text:
        raise PeerError("there is a private key in it", expected="certificates", cure=LEAKED)
    try:
        (made,) = x509.load_pem_x509_certificates(text.encode())
        made.verify_directly_issued_by(made)
        key, found = made.public_key(), [(each.value, each.critical) for each in made.extensions]
    except Exception as error:  # of a dozen kinds, for all the ways of not being a certificate
        raise PeerError("not a peer's certificate", got=type(error).__name__, cure=ASK) from None
    if not isinstance(key, ec.EllipticCurvePublicKey) or not isinstance(key.curve, ec.SECP256R1):
        raise PeerError("not a peer's certificate", expected="a P-256 key", got="another", cure=ASK)
    if found != _extensions(key):
        what = "a peer's certificate may prove its owner, not sign for others or serve for anything else"
        raise PeerError(what, cure=ASK)
    if not _canonical(made, key):
        raise PeerError("not a peer's certificate", expected="one name and no more, plainly encoded", cure=ASK)
    return _plain(made)


def _canonical(made: x509.Certificate, key: ec.EllipticCurvePublicKey) -> bool:
    """Whether a certificate says what it says in the very bytes in which `certify` would say it."""
    try:
        (name,) = made.subject
        begin, end = made.not_valid_before_utc, made.not_valid_after_utc
        again = _builder(str(name.value), key, made.serial_number, begin, end).sign(new_key(), hashes.SHA256())
        inside, signature = again.tbs_certificate_bytes, made.signature
        whole = inside + _ALGORITHM + bytes([3, len(signature) + 1, 0]) + signature
    except (ValueError, TypeError):  # no name, several, or none that can be; no serial number or date that can be
        return False
    return made.public_bytes(serialization.Encoding.DER) == b"\x30\x82" + len(whole).to_bytes(2) + whole


@lru_cache(maxsize=4096)
def parsed(text: str) -> x509.Certificate:
    """A PEM certificate, read."""
    return x509.load_pem_x509_certificate(text.encode())


@lru_cache(maxsize=4096)
def fingerprint(text: str) -> str:
    """SHA-256 of a PEM certificate's DER form, in hexadecimal."""
    return parsed(text).fingerprint(hashes.SHA256()).hex()


def _plain(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(serialization.Encoding.PEM).decode()
