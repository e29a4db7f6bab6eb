"""The project's image: its base from debootstrap, its layers by buildah, both without a registry.

Everything runs in a mount namespace that ends with it, so that a build leaves no mount behind.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from shlex import quote

from localcluster import debian_packages
from localcluster.commands import Argument, run, run_logged, succeeds
from localcluster.image_export import export_image
from localcluster.image_loading import project_layout
from localcluster.settings import REPOSITORY, Paths, environment
from localcluster.whole_files import write_whole

LOCAL_BASE = "localhost/debian:bookworm-slim"
RELEASE = "bookworm"
MIRROR = "http://deb.debian.org/debian"
SOURCES_LIST = f"""\
deb {MIRROR} {RELEASE} main
deb {MIRROR} {RELEASE}-updates main
deb {MIRROR}-security {RELEASE}-security main
"""
CERTIFICATE_VARIABLES = ("SSL_CERT_FILE", "PIP_CERT", "REQUESTS_CA_BUNDLE")


class ImageBuilder:
    def __init__(self, paths: Paths, say: Callable[[str], None]) -> None:
        self.paths = paths
        self.say = say
        self.folder = paths.cache / "image-build"

    def build(self, image: str) -> None:
        """Afterwards it is in buildah's storage."""
        debian_packages.provide(self.paths, debian_packages.IMAGE_PACKAGES)
        (self.folder / "tmp").mkdir(parents=True, exist_ok=True)
        self.write_signature_policy()
        base = environment("IMAGE_BASE", "") or self.provide_base()
        self.say("building the image")
        secrets = self.write_secrets()
        options = ["--isolation", "chroot", "--layers", "--build-arg", f"BASE={base}", "--tag", image]
        self.buildah("build", *options, *secrets, REPOSITORY, log="image-build.log")
        self.remove_leftovers()

    def remove_leftovers(self) -> None:
        """What killed builds left, and images whose name another has by now: in time they would fill the disk."""
        self.buildah("rm", "--all", log="image-leftovers.log")
        self.buildah("rmi", "--prune", log="image-leftovers.log")

    def export(self, image: str) -> None:
        """Into the folder of images, from where `image_loading` puts it into the nodes."""
        export_image(self.storage, image, project_layout(self.paths))

    def provide_base(self) -> str:
        if self.has_image(LOCAL_BASE):
            return LOCAL_BASE
        self.say("making the base image with debootstrap: two minutes, once")
        root = self.folder / "base"
        shutil.rmtree(root, ignore_errors=True)
        self.debootstrap(root)
        remove_machine_traces(root)
        container = run(self.isolated(self.command("from", "scratch")), env=self.env).strip()
        self.buildah("add", container, f"{root}/", "/", log="base-image.log")
        self.buildah("config", "--cmd", "bash", container, log="base-image.log")
        self.buildah("commit", "--rm", container, LOCAL_BASE, log="base-image.log")
        shutil.rmtree(root)
        return LOCAL_BASE

    def debootstrap(self, root: Path) -> None:
        scripts = debian_packages.root(self.paths) / "usr" / "share" / "debootstrap"
        env = {**self.env, **({"DEBOOTSTRAP_DIR": str(scripts)} if scripts.exists() else {})}
        mirror = environment("DEBIAN_MIRROR", MIRROR)
        command: list[Argument] = ["debootstrap", "--variant=minbase", *self.keyring(), RELEASE, root, mirror]
        run_logged(self.isolated(command), self.log("debootstrap.log"), env=env)

    def keyring(self) -> list[str]:
        name = "usr/share/keyrings/debian-archive-keyring.gpg"
        for root in (Path("/"), debian_packages.root(self.paths)):
            if (root / name).exists():
                return [f"--keyring={root / name}"]
        return []

    def has_image(self, name: str) -> bool:
        return succeeds(self.isolated(self.command("inspect", "--type", "image", name)), env=self.env)

    def write_signature_policy(self) -> None:
        """Both files must exist; the machine's own may not."""
        self.signature_policy.write_text('{"default": [{"type": "insecureAcceptAnything"}]}')
        self.registries.write_text('unqualified-search-registries = ["docker.io"]\n')

    def write_secrets(self) -> list[str]:
        """This machine's certificates and pip settings, for the time of the build."""
        settings = pip_settings(self.env)
        secrets = []
        if bundle := certificate_bundle():
            settings["cert"] = "/run/secrets/ca.crt"
            secrets += ["--secret", f"id=ca.crt,src={bundle}"]
        configuration = self.folder / "pip.conf"
        lines = [f"{name} = {value}" for name, value in settings.items()]
        write_whole(configuration, "\n".join(["[global]", *lines, ""]).encode(), mode=0o600)  # it may have a password
        return [*secrets, "--secret", f"id=pip.conf,src={configuration}"]

    @property
    def signature_policy(self) -> Path:
        return self.folder / "policy.json"

    @property
    def registries(self) -> Path:
        return self.folder / "registries.conf"

    @property
    def env(self) -> dict[str, str]:
        env = debian_packages.environment(self.paths)
        own = {"CONTAINERS_REGISTRIES_CONF": str(self.registries), "TMPDIR": str(self.folder / "tmp")}
        return {**env, **own, "STORAGE_DRIVER": "overlay"}

    def command(self, verb: str, *arguments: Argument) -> list[Argument]:
        storage = ["--root", f"{self.folder}/storage", "--runroot", f"{self.folder}/run"]
        policy = ["--signature-policy", str(self.signature_policy)] if verb in ("build", "commit", "from") else []
        return ["buildah", *storage, verb, *policy, *arguments]

    def storage(self, verb: str, *arguments: str) -> str:
        options = ["--graph", f"{self.folder}/storage", "--run", f"{self.folder}/run"]
        return run(self.isolated(["containers-storage", *options, verb, *arguments]), env=self.env)

    def buildah(self, verb: str, *arguments: Argument, log: str) -> None:
        run_logged(self.isolated(self.command(verb, *arguments)), self.log(log), env=self.env)

    def isolated(self, command: Sequence[Argument]) -> list[Argument]:
        return isolated(command, debian_packages.root(self.paths), self.folder / "var-lib")

    def log(self, name: str) -> Path:
        return self.paths.cache / "logs" / name


def isolated(command: Sequence[Argument], unpacked: Path, var_lib: Path) -> list[Argument]:
    """With the unpacked packages laid over /usr, because buildah restarts itself with no environment to find them
    by; and with a /var/lib of its own, because it keeps a cache there."""
    var_lib.mkdir(parents=True, exist_ok=True)
    script = f'mount --bind {quote(str(var_lib))} /var/lib && exec "$@"'
    if (unpacked / "usr").exists():
        layers = quote(f"lowerdir={unpacked}/usr:/usr")
        script = f"mount -t overlay -o {layers} streamingjob-packages /usr && {script}"
    return ["unshare", "--mount", "--", "sh", "-c", script, "isolated", *command]


def certificate_bundle() -> Path | None:
    """Given by the variables that TLS libraries read; without one the image's own certificates are right."""
    for name in CERTIFICATE_VARIABLES:
        if (value := os.environ.get(name)) and Path(value).is_file():
            return Path(value)
    return None


def pip_settings(env: dict[str, str]) -> dict[str, str]:
    """Where this machine's pip finds packages, if it was told: by its files, or by PIP_… variables, which win."""
    done = subprocess.run(
        ["python3", "-m", "pip", "config", "list"], env=env, capture_output=True, text=True, check=False
    )
    told = dict(line.split("=", 1) for line in done.stdout.splitlines() if "=" in line)
    return {
        name: told[origin + name].strip("'\"")
        for origin in ("global.", "install.", ":env:.")
        for name in ("index-url", "extra-index-url", "trusted-host")
        if origin + name in told
    }


def remove_machine_traces(root: Path) -> None:
    """debootstrap copies some of the machine's own files, and writes its mirror."""
    for name in ("etc/resolv.conf", "etc/hostname"):
        (root / name).unlink(missing_ok=True)
    (root / "etc/apt/sources.list").write_text(SOURCES_LIST)
    for folder in ("var/cache/apt/archives", "var/lib/apt/lists"):
        shutil.rmtree(root / folder, ignore_errors=True)
        (root / folder / "partial").mkdir(parents=True)
    for log in ("bootstrap.log", "dpkg.log", "alternatives.log"):
        (root / "var/log" / log).unlink(missing_ok=True)
