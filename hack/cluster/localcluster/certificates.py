"""The cluster's certificate authority, and a key pair for everyone who speaks to the API server."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from localcluster.commands import run
from localcluster.locks import one_at_a_time
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
        return self.made_once(self.location("authority"), self.make_authority)

    def make_authority(self, pair: KeyPair) -> None:
        subject = ["-subj", "/CN=streamingjob-cluster", "-days", DAYS]
        usage = ["-addext", "keyUsage=critical,keyCertSign,cRLSign,digitalSignature"]
        self.openssl("req", "-x509", "-new", "-key", pair.key, *subject, *usage, "-out", pair.certificate)

    def client(self, name: str, user: str, group: str = "") -> KeyPair:
        subject = f"/O={group}/CN={user}" if group else f"/CN={user}"
        return self.issue(name, subject, ["extendedKeyUsage=clientAuth"])

    def server(self, name: str, hosts: Sequence[str], addresses: Sequence[str]) -> KeyPair:
        names = [f"DNS:{host}" for host in hosts] + [f"IP:{address}" for address in addresses]
        return self.issue(name, f"/CN={hosts[0]}", ["extendedKeyUsage=serverAuth", f"subjectAltName={','.join(names)}"])

    def signing_key(self, name: str) -> KeyPair:
        """A bare key pair: service account tokens are signed with it."""
        pair = KeyPair(self.folder / f"{name}.pub", self.folder / f"{name}.key")
        return self.made_once(
            pair, lambda new: self.openssl("pkey", "-in", new.key, "-pubout", "-out", new.certificate)
        )

    def issue(self, name: str, subject: str, extensions: Sequence[str]) -> KeyPair:
        authority = self.pair

        def sign(new: KeyPair) -> None:
            request = self.openssl("req", "-new", "-key", new.key, "-subj", subject)
            lines = new.certificate.with_suffix(".extensions")
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
            self.openssl("x509", "-req", *signer, "-extfile", lines, "-out", new.certificate, stdin=request)

        return self.made_once(self.location(name), sign)

    def made_once(self, pair: KeyPair, make_certificate: Callable[[KeyPair], object]) -> KeyPair:
        """Whoever asks first has it made; the certificate comes last, and whole."""
        with one_at_a_time(self.folder / "lock"):
            if not pair.certificate.exists():
                part = KeyPair(pair.certificate.with_suffix(".part"), pair.key)
                self.make_key(pair.key)
                make_certificate(part)
                part.certificate.rename(pair.certificate)
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
