"""The cluster's certificate authority, and a key pair for everyone who speaks to the API server."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from localcluster.commands import run
from localcluster.settings import CLUSTER_DOMAIN, Network

DAYS = "3650"


@dataclass(frozen=True)
class KeyPair:
    certificate: Path
    key: Path


@dataclass(frozen=True)
class Authority:
    """Signs on demand and keeps what it has signed."""

    folder: Path
    env: dict[str, str]

    @property
    def pair(self) -> KeyPair:
        pair = self.location("authority")
        if not pair.certificate.exists():
            self.folder.mkdir(parents=True, exist_ok=True)
            self.make_key(pair.key)
            subject = ["-subj", "/CN=streamingjob-cluster", "-days", DAYS]
            usage = ["-addext", "keyUsage=critical,keyCertSign,cRLSign,digitalSignature"]
            self.openssl("req", "-x509", "-new", "-key", pair.key, *subject, *usage, "-out", pair.certificate)
        return pair

    def client(self, name: str, user: str, group: str = "") -> KeyPair:
        subject = f"/O={group}/CN={user}" if group else f"/CN={user}"
        return self.issue(name, subject, ["extendedKeyUsage=clientAuth"])

    def server(self, name: str, hosts: Sequence[str], addresses: Sequence[str]) -> KeyPair:
        names = [f"DNS:{host}" for host in hosts] + [f"IP:{address}" for address in addresses]
        return self.issue(name, f"/CN={hosts[0]}", ["extendedKeyUsage=serverAuth", f"subjectAltName={','.join(names)}"])

    def signing_key(self, name: str) -> KeyPair:
        """A bare key pair: service account tokens are signed with it."""
        pair = KeyPair(self.folder / f"{name}.pub", self.folder / f"{name}.key")
        if not pair.certificate.exists():
            self.folder.mkdir(parents=True, exist_ok=True)
            self.make_key(pair.key)
            self.openssl("pkey", "-in", pair.key, "-pubout", "-out", pair.certificate)
        return pair

    def issue(self, name: str, subject: str, extensions: Sequence[str]) -> KeyPair:
        pair = self.location(name)
        if not pair.certificate.exists():
            authority = self.pair
            self.make_key(pair.key)
            request = self.openssl("req", "-new", "-key", pair.key, "-subj", subject)
            lines = pair.certificate.with_suffix(".extensions")
            lines.write_text("\n".join(["basicConstraints=critical,CA:FALSE", *extensions]))
            signer: list[str | Path] = [
                "-CA",
                authority.certificate,
                "-CAkey",
                authority.key,
                "-CAcreateserial",
                "-days",
                DAYS,
            ]
            self.openssl("x509", "-req", *signer, "-extfile", lines, "-out", pair.certificate, stdin=request)
        return pair

    def location(self, name: str) -> KeyPair:
        return KeyPair(self.folder / f"{name}.crt", self.folder / f"{name}.key")

    def make_key(self, target: Path) -> None:
        self.openssl("ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", target)
        target.chmod(0o600)

    def openssl(self, *arguments: str | Path, stdin: str | None = None) -> str:
        return run(["openssl", *arguments], env=self.env, stdin=stdin)


def api_server_names(network: Network) -> tuple[list[str], list[str]]:
    """By what the API server is called: from pods, and from the host."""
    service = ["kubernetes", "kubernetes.default", "kubernetes.default.svc"]
    hosts = [*service, f"kubernetes.default.svc.{CLUSTER_DOMAIN}", "localhost"]
    return hosts, ["127.0.0.1", network.host_address, network.kubernetes_service]
