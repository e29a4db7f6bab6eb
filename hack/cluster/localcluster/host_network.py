"""The host's side of the network: one bridge, one link per node, one route per node to its pods.

No iptables rule, no forwarding switch and no named network namespace: all routing between pods and services
happens inside the nodes. Deleting the bridge deletes the routes; the end of a node deletes its link.
"""

from __future__ import annotations

import ipaddress
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from localcluster.commands import run, succeeds
from localcluster.settings import Names, Network


@dataclass(frozen=True)
class HostNetwork:
    names: Names
    network: Network
    env: dict[str, str]

    def create_bridge(self) -> None:
        if link_exists(self.names.bridge):
            return
        self.ip("link", "add", self.names.bridge, "type", "bridge")
        self.ip("address", "add", f"{self.network.host_address}/24", "dev", self.names.bridge)
        self.ip("link", "set", self.names.bridge, "up")
        # A bridge has no carrier, and its address no use, until something is plugged in.
        self.ip(
            "route",
            "replace",
            self.network.service_range,
            "via",
            self.network.node_address(1),
            "dev",
            self.names.bridge,
        )

    def delete_bridge(self) -> None:
        if link_exists(self.names.bridge):
            self.ip("link", "delete", self.names.bridge)

    def plug_in(self, number: int, pid: int) -> None:
        """A cable from the bridge to the network namespace of that process, where its end is called eth0."""
        link = self.names.link(number)
        if link_exists(link):
            self.ip("link", "delete", link)
        self.ip("link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", str(pid))
        self.ip("link", "set", link, "master", self.names.bridge, "up")
        self.ip(
            "route",
            "replace",
            self.network.node_pod_range(number),
            "via",
            self.network.node_address(number),
            "dev",
            self.names.bridge,
        )

    def unplug(self, number: int) -> None:
        if link_exists(self.names.link(number)):
            self.ip("link", "delete", self.names.link(number))
        route = ["route", "delete", self.network.node_pod_range(number), "dev", self.names.bridge]
        succeeds(["ip", *route], env=self.env)  # it may be gone with the link

    def cut(self, number: int) -> None:
        self.ip("link", "set", self.names.link(number), "down")

    def mend(self, number: int) -> None:
        self.ip("link", "set", self.names.link(number), "up")

    def overlapping_routes(self) -> list[str]:
        """Routes of this machine, not our own, that the cluster's addresses would hide."""
        ours = ipaddress.ip_network(self.network.whole)
        return [
            route["dst"]
            for route in self.routes()
            if route.get("dev") != self.names.bridge and overlaps(route["dst"], ours)
        ]

    def routes(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(self.ip("-json", "-4", "route", "show", "table", "main") or "[]")
        return found

    def ip(self, *arguments: str) -> str:
        return run(["ip", *arguments], env=self.env)


def overlaps(destination: str, ours: ipaddress.IPv4Network | ipaddress.IPv6Network) -> bool:
    if destination == "default":
        return False
    route = ipaddress.ip_network(destination, strict=False)
    return route.prefixlen > 0 and route.overlaps(ours)


def link_exists(name: str) -> bool:
    return Path(f"/sys/class/net/{name}").exists()
