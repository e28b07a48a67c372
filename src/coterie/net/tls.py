"""TLS between peers that know each other by their cards: who may call, whom we reach, and who it is that calls."""

from collections.abc import Mapping, Sequence
from typing import Any

import grpc

from coterie.errors import PeerError, Refused
from coterie.net.certificates import SERVER, fingerprint
from coterie.net.identity import Card, Home


def server_credentials(home: Home) -> grpc.ServerCredentials:
    """TLS for our server: a caller must own one of the neighbours' certificates."""
    trusted = "".join(text for card in home.look()[0].values() for text in card.certificates)
    if not trusted:
        raise PeerError("this peer has no neighbours", cure="Add some with `coterie peer add NAME.peer`.")
    pair = (home.key, home.certificate.encode())
    return grpc.ssl_server_credentials([pair], root_certificates=trusted.encode(), require_client_auth=True)


def channel(home: Home, card: Card, options: Sequence[tuple[str, Any]] = ()) -> grpc.aio.Channel:
    """A TLS channel to a neighbour: who answers must own one of the card's certificates, wherever that is.

    Nothing signed by their keys will do: a card holds no certificate that TLS would take for an issuer.
    """
    credentials = grpc.ssl_channel_credentials("".join(card.certificates).encode(), home.key, home.certificate.encode())
    fixed = [("grpc.ssl_target_name_override", SERVER), ("grpc.enable_http_proxy", 0)]
    # With its scheme, because a host called "unix" would else be a socket in the file system.
    return grpc.aio.secure_channel(f"dns:///{card.address}", credentials, options=[*options, *fixed])


def caller(context: grpc.aio.ServicerContext, neighbours: Mapping[str, Card]) -> str:
    """The name of the neighbour who calls: the one on whose card the certificate is, whatever that says of itself."""
    shown = list(context.auth_context().get("x509_pem_cert") or ())
    if len(shown) != 1:
        raise Refused("stranger", "no certificate")
    try:
        seen = fingerprint(shown[0].decode("ascii"))
    except ValueError:
        raise Refused("stranger", "a damaged certificate") from None
    for name, card in neighbours.items():
        if seen in card.fingerprints:
            return name
    raise Refused("stranger", f"a certificate on no card: {seen}")
