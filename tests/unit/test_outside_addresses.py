"""Where a stranger's URL may lead: every way to write an address of the inside is refused, and named by its rule."""

from __future__ import annotations

import ipaddress

import pytest

from genflow.errors import GenflowError
from genflow.outside.addresses import Allowed, check_addresses, read_url, why_not

ADDRESSES = {
    "127.0.0.1": "loopback", "127.255.255.254": "loopback", "::1": "loopback",
    "10.0.0.1": "private", "172.16.0.1": "private", "192.168.1.1": "private", "fd12:3456::1": "private",
    "169.254.1.1": "link_local", "fe80::1": "link_local",
    "169.254.169.254": "metadata", "fd00:ec2::254": "metadata", "169.254.170.2": "metadata",
    "100.100.100.200": "metadata",
    "100.64.0.1": "shared", "100.127.255.255": "shared",
    "0.0.0.0": "unspecified", "::": "unspecified",  # noqa: S104
    "224.0.0.1": "multicast", "ff02::1": "multicast", "239.255.255.255": "multicast",
    "240.0.0.1": "private", "255.255.255.255": "private", "192.0.2.1": "private", "198.18.0.1": "private",
    "::ffff:127.0.0.1": "loopback", "::ffff:169.254.169.254": "metadata", "::ffff:8.8.8.8": "ipv4_mapped",
    "64:ff9b::7f00:1": "loopback", "64:ff9b::808:808": "tunnel", "64:ff9b:1::a00:1": "private",
    "2002:7f00:1::": "loopback", "2002:a9fe:a9fe::1": "metadata", "2002:808:808::": "tunnel",
    "2001:0:4136:e378:8000:63bf:80ff:fffe": "loopback", "2001:db8::1": "private",
    "::7f00:1": "reserved", "fec0::1": "reserved",
}  # fmt: skip
PUBLIC = ("8.8.8.8", "1.1.1.1", "2606:4700:4700::1111", "100.63.255.255", "172.32.0.1", "172.15.255.255")

URLS = {
    "ftp://example.com/a": "scheme", "file:///etc/passwd": "scheme", "//example.com/a": "scheme", "": "scheme",
    "gopher://example.com": "scheme", "http://": "malformed", "http:///a": "malformed",
    "http://user@example.com/": "credentials", "http://a:b@example.com/": "credentials",
    "http://example.com\\@127.0.0.1/": "malformed", "http://exa mple.com/": "malformed",
    "http://example.com/\r\nHost: x": "malformed", "http://example.com:99999/": "malformed",
    "http://2130706433/": "address_form", "http://0x7f000001/": "address_form", "http://0x7f.1/": "address_form",
    "http://017700000001/": "address_form", "http://0177.0.0.1/": "address_form", "http://127.1/": "address_form",
    "http://127.0.0.1./": "address_form", "http://127.0.0.01/": "address_form", "http://1.2.3.4.5/": "address_form",
    "http://256.0.0.1/": "address_form", "http://0/": "address_form", "http://[fe80::1%25eth0]/": "address_form",
    "http://①②⑦.⓪.⓪.①/": "malformed", "http://exam%70le.com/": "malformed", "http://-a-.com/": "malformed",
    "http://" + "a" * 2_050: "too_long",
}  # fmt: skip


def ask(url: str) -> None:
    target = read_url(url)
    assert target.address is not None
    check_addresses(target, [target.address], Allowed())


def rule_of(url: str) -> str:
    with pytest.raises(GenflowError) as caught:
        ask(url)
    assert caught.value.code == "url_refused"
    assert caught.value.details is not None
    assert caught.value.details["field"] == "url"
    reason: str = caught.value.details["reason"]
    return reason


@pytest.mark.parametrize(("address", "rule"), ADDRESSES.items())
def test_an_address_of_the_inside_is_refused_by_its_rule(address: str, rule: str) -> None:
    assert why_not(ipaddress.ip_address(address)) == rule
    assert rule_of(f"http://[{address}]/" if ":" in address else f"https://{address}:8443/x") == rule


@pytest.mark.parametrize("address", PUBLIC)
def test_an_address_of_the_public_internet_passes(address: str) -> None:
    assert why_not(ipaddress.ip_address(address)) is None


@pytest.mark.parametrize(("url", "rule"), URLS.items())
def test_a_url_that_two_readers_could_read_differently_is_refused(url: str, rule: str) -> None:
    assert rule_of(url) == rule


def test_a_good_url_keeps_its_host_and_port() -> None:
    target = read_url("https://Files.Example.com./a?b=c")
    assert (target.host, target.port, target.address) == ("files.example.com", 443, None)
    assert read_url("http://bücher.example:81/").host == "xn--bcher-kva.example"


def test_one_bad_address_among_good_ones_refuses_them_all() -> None:
    target = read_url("http://two.example/")
    addresses = [ipaddress.ip_address("8.8.8.8"), ipaddress.ip_address("10.0.0.1")]
    with pytest.raises(GenflowError, match=r"two\.example leads to an address that may not be asked"):
        check_addresses(target, addresses, Allowed())
    assert check_addresses(target, addresses, Allowed.of(["two.example"])) == addresses
    assert check_addresses(target, addresses, Allowed.of(["10.0.0.0/30"])) == addresses
    with pytest.raises(GenflowError):
        check_addresses(target, addresses, Allowed.of(["10.0.1.0/24", "example"]))


@pytest.mark.parametrize("word", ["10.0.0.1/8", "a b", "*.example.com", "http://a/", "300.1.1.1"])
def test_an_allowance_that_means_nothing_is_refused_at_start(word: str) -> None:
    with pytest.raises(GenflowError, match="fetch_allow"):
        Allowed.of([word])
