"""Which hosts are surely inside. What `ipaddress` says differs by Python version, so the table is ours."""

from __future__ import annotations

import pytest

from streams.core.outside import is_inside

INSIDE = """
localhost LOCALHOST localhost. app.localhost kafka postgres kafka.default.svc x.svc.cluster.local
printer.local metadata.internal metadata.internal. host.docker.internal router.lan nas.home.arpa
a.localdomain 127.0.0.1 127.8.8.8 127.0.0.1. 0.0.0.0 0.1.2.3 10.0.0.1 172.16.0.1 172.31.255.255
192.168.0.1 169.254.169.254 100.64.0.1 100.100.100.200 168.63.129.16 192.0.0.192 192.0.2.1
198.18.0.1 198.51.100.1 203.0.113.1 224.0.0.1 240.0.0.1 255.255.255.255 127.1 127.0.1 2130706433
0x7f000001 0x7f.1 0X7F.0.0.1 0177.0.0.1 017700000001 1.2.3 1.2.3.4.5 999.1.1.1 0x a.1 008.8.8.8 [::]
[::1] [::ffff:127.0.0.1] [::ffff:8.8.8.8] [::7f00:1] [64:ff9b::7f00:1] [64:ff9b:1::1]
[2002:7f00:1::] [2001:0:7f00:1::1] [fe80::1] [fec0::1] [fc00::1] [fd00:ec2::254] [ff02::1]
[2001:db8::1] [1] [:::1]
"""
OUTSIDE = """
example.com hooks.example.co.uk EXAMPLE.com. 1.example.com 0x7f.example.com local.example.com
internal.example.com 8.8.8.8 1.1.1.1 172.15.0.1 172.32.0.1 100.63.0.1 100.128.0.1
[2606:4700:4700::1111] [2a00:1450:4001::200e] xn--bcher-kva.example face.de
"""


@pytest.mark.parametrize("host", INSIDE.split())
def test_inside(host: str) -> None:
    assert is_inside(host)


@pytest.mark.parametrize("host", OUTSIDE.split())
def test_outside(host: str) -> None:
    assert not is_inside(host)
