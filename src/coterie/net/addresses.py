"""Where peers listen and are dialled: HOST:PORT."""

import ipaddress
import re
import socket

from coterie.errors import PeerError

_HOST = re.compile(r"(?=.{1,253}$)[A-Za-z0-9_]([A-Za-z0-9_.-]*[A-Za-z0-9_])?\.?")


def split_address(address: object) -> tuple[str, int]:
    """Host (without brackets) and port of HOST:PORT."""
    host, _, port = address.rpartition(":") if isinstance(address, str) else ("", "", "")
    if not (re.fullmatch(r"[0-9]{1,5}", port) and _is_host(host)):
        cure = "Write an IPv6 address in brackets: [::1]:7001."
        raise PeerError("not an address", expected="HOST:PORT", got=quoted(address), cure=cure)
    if not 0 < int(port) < 65536:
        cure = "Others must know where to dial: choose one, such as 7001."
        raise PeerError("not a port", expected="1 to 65535", got=port, cure=cure)
    return host.strip("[]"), int(port)


def _is_host(host: str) -> bool:
    if host.startswith("[") and host.endswith("]"):
        try:
            return ipaddress.IPv6Address(host[1:-1]).scope_id is None  # a scope means something on one machine only
        except ValueError:
            return False
    return _HOST.fullmatch(host) is not None


def anywhere(host: str) -> bool:
    """Whether a host stands for all of this machine's addresses."""
    try:
        return ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return False


def reachable(listen: str) -> str:
    """Where others reach who listens here: the same, or for "everywhere" the outgoing interface, or the host's name."""
    host, port = split_address(listen)
    if not anywhere(host):
        return listen
    ways = [(socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "2001:db8::1")][: 2 if ":" in host else 1]
    for family, somewhere in ways:
        try:
            with socket.socket(family, socket.SOCK_DGRAM) as probe:
                probe.connect((somewhere, 9))  # chooses a route and sends nothing; these addresses are nobody's
                found = ipaddress.ip_address(probe.getsockname()[0])
        except (OSError, ValueError):
            continue
        if not (found.is_loopback or found.is_link_local or found.is_unspecified):
            return f"{found}:{port}" if found.version == 4 else f"[{found}]:{port}"
    return f"{socket.gethostname()}:{port}"


def quoted(value: object) -> str:
    """What somebody wrote, short and without control characters."""
    try:
        return ascii(value)[:80]
    except ValueError:  # a number with more digits than Python writes out
        return f"an enormous {type(value).__name__}"
