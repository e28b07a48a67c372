"""TLS between peers that know each other by their cards: who may call, whom we reach, and who it is that calls."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import grpc

from coterie.errors import PeerError, Refused
from coterie.net.certificates import SERVER, fingerprint
from coterie.net.identity import Card, Home

STRANGER = "you are not my neighbour"
"""All that anybody else is told."""


class Others(Protocol):
    """Certificates that count beside those on cards, and that come and go."""

    certificates: tuple[str, ...]

    def look(self) -> bool:
        """Whether these are others than before; asked at every handshake."""
        ...


def server_credentials(home: Home, others: Others | None = None) -> grpc.ServerCredentials:
    """TLS for our server: a caller must own one of the neighbours' certificates, or one of the `others`."""
    if others is not None:
        others.look()
    cards = [text for card in home.look()[0].values() for text in card.certificates]
    if not cards and not (others and others.certificates):
        cure = "Add some with `coterie peer add NAME.peer`, or `coterie peer invite` one."
        raise PeerError("this peer has no neighbours", cure=cure)
    pair = (home.key, home.certificate.encode())

    def trust() -> grpc.ServerCertificateConfiguration:
        roots = "".join([*cards, *(others.certificates if others else ())]) or home.certificate  # never: whoever comes
        return grpc.ssl_server_certificate_configuration([pair], root_certificates=roots.encode())

    def anew() -> grpc.ServerCertificateConfiguration | None:
        try:
            return trust() if others is not None and others.look() else None
        except Exception:  # gRPC would refuse neighbours for it
            return None

    return grpc.dynamic_ssl_server_credentials(trust(), anew, require_client_authentication=True)


def channel(home: Home, card: Card, options: Sequence[tuple[str, Any]] = ()) -> grpc.aio.Channel:
    """A TLS channel to a neighbour: who answers must own one of the card's certificates, wherever that is.

    Nothing signed by their keys will do: a card holds no certificate that TLS would take for an issuer.
    """
    return dial(card.address, "".join(card.certificates), (home.key, home.certificate.encode()), options)


def dial(
    address: str, trusted: str, pair: tuple[bytes, bytes], options: Sequence[tuple[str, Any]] = ()
) -> grpc.aio.Channel:
    """A TLS channel to who owns a trusted certificate, with a key and a certificate of ours."""
    credentials = grpc.ssl_channel_credentials(trusted.encode(), *pair)
    fixed = [("grpc.ssl_target_name_override", SERVER), ("grpc.enable_http_proxy", 0)]
    # With its scheme, because a host called "unix" would else be a socket in the file system.
    return grpc.aio.secure_channel(f"dns:///{address}", credentials, options=[*options, *fixed])


def shown(context: grpc.aio.ServicerContext) -> str:
    """The fingerprint of the certificate with which somebody calls."""
    certificates = list(context.auth_context().get("x509_pem_cert") or ())
    if len(certificates) != 1:
        raise Refused("stranger", "no certificate")
    try:
        return fingerprint(certificates[0].decode("ascii"))
    except ValueError:
        raise Refused("stranger", "a damaged certificate") from None


def caller(context: grpc.aio.ServicerContext, neighbours: Mapping[str, Card]) -> str:
    """The name of the neighbour who calls: the one on whose card the certificate is, whatever that says of itself."""
    seen = shown(context)
    for name, card in neighbours.items():
        if seen in card.fingerprints:
            return name
    raise Refused("stranger", f"a certificate on no card: {seen}")
