"""Whether the host of a URL that a tenant names is outside: nobody may have the installation call itself.

Only what the text itself gives away is judged here, when the setting is made: numbers, and names that are
never public. Where a public name leads is seen when it is called, each time.
"""

from __future__ import annotations

from ipaddress import AddressValueError, IPv4Address, IPv4Network, IPv6Address, IPv6Network

_INNER_DOMAINS = ("localhost", "local", "localdomain", "internal", "intranet", "lan", "home.arpa", "svc")
"""RFC 6761, 6762, 8375, ICANN's `internal`, and what resolvers of clusters and offices serve."""
_INNER_NETWORKS: tuple[IPv4Network | IPv6Network, ...] = (
    IPv4Network("100.64.0.0/10"),  # between a provider and its customers, and metadata of one cloud
    IPv4Network("192.0.0.0/24"),  # assigned to protocols, and metadata of another
    IPv4Network("168.63.129.16/32"),  # public by its number, and yet a platform's own
    IPv6Network("fec0::/10"),  # site-local, as it was
    # What stands for IPv4 addresses, which can be written as such:
    IPv6Network("::/96"),  # compatible
    IPv6Network("::ffff:0:0/96"),  # mapped
    IPv6Network("64:ff9b::/32"),  # NAT64
    IPv6Network("2001::/32"),  # Teredo
    IPv6Network("2002::/16"),  # 6to4
)
"""What `ipaddress` takes for global, in some version of Python at least (measured)."""


def is_inside(host: str) -> bool:
    """Whether `host`, as in a URL, is surely not public: a number that is not, or is written so that readers
    differ about it (`127.1`, `0x7f000001`, `0177.0.0.1`), a name without a dot, or one of an inner domain."""
    try:
        if host.startswith("["):
            return _is_inner(IPv6Address(host[1:-1]))
        name = host.rstrip(".").lower()
        if _is_number(name.rpartition(".")[2]):
            return _is_inner(IPv4Address(name))
    except AddressValueError:
        return True
    return "." not in name or any(f".{name}".endswith(f".{domain}") for domain in _INNER_DOMAINS)


def _is_number(label: str) -> bool:
    """A host whose last label is one is an IPv4 address, or none at all (WHATWG URL)."""
    digits = label.removeprefix("0x")
    return label.isdigit() or (digits != label and all(each in "0123456789abcdef" for each in digits))


def _is_inner(address: IPv4Address | IPv6Address) -> bool:
    is_public = address.is_global and not address.is_multicast and not address.is_reserved
    return not is_public or any(address in network for network in _INNER_NETWORKS)
