"""What pods have written into the volume of a claim, in whichever cluster."""

from __future__ import annotations

import base64
import shutil
import subprocess
import tempfile
from functools import cached_property
from pathlib import Path

from localcluster.testing.kubectl import Manifest
from localcluster.testing.namespace import Namespace

MOUNT = "/volume"
ARCHIVE = f"tar --create --ignore-failed-read --directory {MOUNT} . 2>/dev/null | base64 --wrap=0"
"""Files that change or go meanwhile are no failure. Encoded, because it comes as text."""


class ClaimContents:
    """In our own cluster volumes are folders of this machine; elsewhere a pod of `image` looks into them."""

    def __init__(self, namespace: Namespace, claim: str, image: str) -> None:
        self.namespace = namespace
        self.claim = claim
        self.image = image

    def folder(self) -> Path:
        """The volume itself, or a copy as of now: only for reading."""
        return self.folder_of_this_machine if self.is_here else self.new_copy()

    def touch(self, file: str) -> None:
        """Makes an empty file, by its path in the volume."""
        if self.is_here:
            (self.folder_of_this_machine / file).touch()
        else:
            self.namespace.execute(self.looker, "touch", f"{MOUNT}/{file}")

    @property
    def is_here(self) -> bool:
        return self.namespace.shared_folders is not None

    @cached_property
    def folder_of_this_machine(self) -> Path:
        name = self.namespace.wait_for(f"the claim {self.claim} to be bound", self.volume_name)
        volume = self.namespace.cluster_kubectl.get("pv", name)
        assert volume is not None, f"{self.claim} is bound to {name}, which is not there"
        return Path(volume["spec"]["hostPath"]["path"])

    def volume_name(self) -> str:
        claim = self.namespace.get("pvc", self.claim) or {"spec": {}}
        name: str = claim["spec"].get("volumeName", "")
        return name

    def new_copy(self) -> Path:
        content = base64.b64decode(self.namespace.execute(self.looker, "sh", "-c", ARCHIVE))
        shutil.rmtree(self.place_for_copies, ignore_errors=True)
        self.place_for_copies.mkdir()
        subprocess.run(["tar", "--extract", "--directory", str(self.place_for_copies)], input=content, check=True)
        return self.place_for_copies

    @cached_property
    def place_for_copies(self) -> Path:
        folder = Path(tempfile.mkdtemp(prefix=f"{self.claim}-"))
        self.namespace.leaving.callback(shutil.rmtree, folder, ignore_errors=True)
        return folder

    @cached_property
    def looker(self) -> str:
        name = f"looks-into-{self.claim}"
        self.namespace.apply(looking_pod(name, self.claim, self.image))
        self.namespace.wait_until_ready(name, seconds=120)
        return name


def looking_pod(name: str, claim: str, image: str) -> Manifest:
    container = {
        "name": "main",
        "image": image,
        "args": ["sleep", "infinity"],
        "volumeMounts": [{"name": "volume", "mountPath": MOUNT}],
        "resources": {"requests": {"cpu": "10m"}},
    }
    volumes = [{"name": "volume", "persistentVolumeClaim": {"claimName": claim}}]
    spec = {"containers": [container], "volumes": volumes, "terminationGracePeriodSeconds": 0}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
