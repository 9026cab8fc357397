"""Which addresses a stranger's URL may lead to. Pure: no name is resolved and nothing is opened here.

A URL from outside is asked by this machine, from inside its network: what only this machine reaches, such as a cloud's
metadata service or the database, must not be had by naming it. So only addresses of the public internet pass, in
whatever form they are written, and what an operator allows by name.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from dataclasses import dataclass
from urllib.parse import SplitResult, urlsplit

from genflow.errors import GenflowError, clean_text

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

URL_CHARACTERS = 2_048

_METADATA: frozenset[Address] = frozenset(
    ipaddress.ip_address(each)
    for each in ("169.254.169.254", "169.254.170.2", "100.100.100.200", "168.63.129.16", "fd00:ec2::254")
)
_SHARED = ipaddress.ip_network("100.64.0.0/10")
_NAT64 = (ipaddress.ip_network("64:ff9b::/96"), ipaddress.ip_network("64:ff9b:1::/48"))
_COMPATIBLE = ipaddress.ip_network("::/96")
_SITE_LOCAL = ipaddress.ip_network("fec0::/10")
_NUMBER = re.compile(r"0[xX][0-9a-fA-F]*|[0-9]+")
_NAME = re.compile(r"(?!-)[a-z0-9_-]{1,63}(?<!-)(\.(?!-)[a-z0-9_-]{1,63}(?<!-))*\.?")
_BAD_CHARACTER = re.compile(r"[\x00-\x20\x7f\\]")


def refused_url(reason: str, message: str, *, got: str, field: str = "url") -> GenflowError:
    """The refusal of a URL; `reason` is the rule that it breaks."""
    details = {"field": field, "reason": reason, "limit": None, "got": clean_text(got, 200)}
    return GenflowError("url_refused", f"{field}: {message}", details=details)


@dataclass(frozen=True, slots=True)
class Allowed:
    """What an operator lets through: hosts by their exact name, and networks, which also let addresses through."""

    hosts: frozenset[str] = frozenset()
    networks: tuple[Network, ...] = ()

    @classmethod
    def of(cls, given: Iterable[str]) -> Allowed:
        """From the words of a setting. GenflowError `setting_invalid` for what is neither a host nor a network."""
        hosts: set[str] = set()
        networks: list[Network] = []
        for word in given:
            try:
                networks.append(ipaddress.ip_network(word))
            except ValueError:
                host = word.lower().rstrip(".")
                if not _NAME.fullmatch(host) or _NUMBER.fullmatch(host.rpartition(".")[2]):
                    message = f"fetch_allow: {word[:80]!r} is neither a host's name nor a network such as 10.0.0.0/8"
                    details = {"field": "fetch_allow", "got": clean_text(word, 80)}
                    raise GenflowError("setting_invalid", message, details=details) from None
                hosts.add(host)
        return cls(frozenset(hosts), tuple(networks))

    def host(self, host: str) -> bool:
        """Whether this host may lead anywhere."""
        return host in self.hosts

    def address(self, address: Address) -> bool:
        """Whether this address may be asked although the rules are against it."""
        return any(address in network for network in self.networks)


@dataclass(frozen=True, slots=True)
class Target:
    """A URL that may be asked, if its name leads to a good address: `address` where the host is one already."""

    url: str
    host: str
    port: int
    address: Address | None


def read_url(given: str) -> Target:
    """The URL, taken apart. GenflowError `url_refused` for what no rule allows, whatever its host leads to."""
    if len(given) > URL_CHARACTERS:
        raise refused_url("too_long", f"has more than {URL_CHARACTERS} characters", got=given)
    if _BAD_CHARACTER.search(given):
        raise refused_url("malformed", "holds a space, a control character or a backslash", got=given)
    parts, port = _split(given)
    if parts.scheme not in ("http", "https"):
        raise refused_url("scheme", "must begin with http:// or https://", got=parts.scheme)
    if parts.username is not None or parts.password is not None:
        raise refused_url("credentials", "must not hold a user name or a password", got="(not shown)")
    host = (parts.hostname or "").lower()
    if not host:
        raise refused_url("malformed", "names no host", got=given)
    address = _as_address(host, given, bracketed="[" in parts.netloc)
    if address is None:
        host = _plain_name(host, given)
    return Target(given, host, port or (443 if parts.scheme == "https" else 80), address)


def _split(given: str) -> tuple[SplitResult, int | None]:
    try:
        parts = urlsplit(given)
        return parts, parts.port
    except ValueError as error:
        raise refused_url("malformed", f"is no URL ({error})", got=given) from None


def _plain_name(host: str, given: str) -> str:
    """The name in ASCII, without a dot at its end."""
    try:
        plain = host.encode("idna").decode("ascii").lower() if not host.isascii() else host
    except UnicodeError:
        raise refused_url("malformed", "has a host's name that can't be", got=given) from None
    if len(plain) > 253 or not _NAME.fullmatch(plain) or _NUMBER.fullmatch(plain.rstrip(".").rpartition(".")[2]):
        raise refused_url("malformed", "has a host's name that can't be", got=given)
    return plain.rstrip(".")


def _as_address(host: str, given: str, *, bracketed: bool) -> Address | None:
    """The address that the host is, in its one usual form; None for a name.

    Other ways to write an address (one number, octal, hexadecimal, fewer than four parts, a zone) are refused: whoever
    writes one wants it to be read differently by two readers.
    """
    if bracketed:
        try:
            address = ipaddress.IPv6Address(host)
        except ValueError:
            raise refused_url("address_form", "has an address that can't be read", got=given) from None
        if address.scope_id is not None:
            raise refused_url("address_form", "has an address with a zone", got=given)
        return address
    parts = host.rstrip(".").split(".")
    if not _NUMBER.fullmatch(parts[-1]):
        return None
    try:
        if host.endswith("."):
            raise ValueError("a dot at its end")
        return ipaddress.IPv4Address(host)
    except ValueError:
        raise refused_url(
            "address_form", "writes an address in an unusual form; write it as four numbers from 0 to 255", got=given
        ) from None


def why_not(address: Address) -> str | None:
    """The rule that keeps this address from being asked, or None for one of the public internet."""
    if address in _METADATA:
        return "metadata"
    if isinstance(address, ipaddress.IPv6Address):
        for inner in _embedded(address):
            if rule := why_not(inner):
                return rule
        if address.ipv4_mapped is not None:
            return "ipv4_mapped"
        if address.sixtofour is not None or address.teredo is not None or any(address in net for net in _NAT64):
            return "tunnel"
    if address.is_unspecified:
        return "unspecified"
    if address.is_loopback:
        return "loopback"
    if address.is_link_local:
        return "link_local"
    if address.is_multicast:
        return "multicast"
    if isinstance(address, ipaddress.IPv4Address) and address in _SHARED:
        return "shared"
    if isinstance(address, ipaddress.IPv6Address) and (address in _SITE_LOCAL or address in _COMPATIBLE):
        return "reserved"
    if address.is_private:
        return "private"
    if address.is_reserved or not address.is_global:
        return "reserved"
    return None


def _embedded(address: ipaddress.IPv6Address) -> list[ipaddress.IPv4Address]:
    """IPv4 addresses that an IPv6 address leads to."""
    found = [address.ipv4_mapped, address.sixtofour, *(address.teredo or ())]
    if any(address in network for network in _NAT64):
        found.append(ipaddress.IPv4Address(int(address) & 0xFFFFFFFF))
    return [each for each in found if each is not None]


def check_addresses(target: Target, addresses: Iterable[Address], allowed: Allowed) -> list[Address]:
    """The addresses that may be asked for this target.

    One bad address among several refuses them all: a name that leads both outside and inside is made to deceive.
    Raises GenflowError `url_refused`, whose reason is the rule.
    """
    passed = list(addresses)
    if not allowed.host(target.host):
        for address in passed:
            rule = None if allowed.address(address) else why_not(address)
            if rule is not None:
                raise refused_url(
                    rule, f"{target.host} leads to an address that may not be asked ({rule})", got=target.url
                )
    return passed
