"""Two volumes of a known speed: loop devices with ext4, their reads and writes capped by the kernel (cgroup v1, blkio.throttle).

The caps are those of a *profile* and can be changed between two runs: the same files lie on four kinds of volume, one after the other.
Each cap is kept by the kernel for everybody who uses that device, whoever it is.
"""

import os
import subprocess
import time

CONTROL = "/sys/fs/cgroup/blkio/blkio.throttle."
MB = 1_000_000
# Bytes per second and operations per second, to read and to write, of the volume of the database and of that of the media.
# The kernel counts a direct operation of 1 MiB as several: a cap of operations may be the lower one.
PROFILES = {
    "even-60": {"database": (60 * MB, 60 * MB, 800, 800), "media": (60 * MB, 60 * MB, 800, 800)},
    "even-250": {"database": (250 * MB, 250 * MB, 3000, 3000), "media": (250 * MB, 250 * MB, 3000, 3000)},
    "slow-media": {"database": (250 * MB, 160 * MB, 3000, 3000), "media": (120 * MB, 80 * MB, 400, 400)},
    "slow-database": {"database": (120 * MB, 90 * MB, 1000, 1000), "media": (250 * MB, 250 * MB, 3000, 3000)},
    # As fast as the disk below is, which both share.
    "uncapped": {"database": (0, 0, 0, 0), "media": (0, 0, 0, 0)},
}
# What is drawn from where nothing else is said: volumes of a known speed.
CAPPED = tuple(name for name in PROFILES if name != "uncapped")
# No volume at all: directories on the disk of --dir, without loop devices and their threads.
LOCAL = "local"
CAPS = ("read_bps", "write_bps", "read_iops", "write_iops")


def run(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


class Volume:
    """A mounted loop device. It is gone, and its file with it, after `remove`."""

    def __init__(self, name, folder, size):
        self.name, self.image, self.path = name, os.path.join(folder, f"{name}.img"), os.path.join(folder, name)
        self.device = self.number = None
        self.size = size

    def make(self):
        os.makedirs(self.path, exist_ok=True)
        with open(self.image, "wb") as image:
            os.posix_fallocate(image.fileno(), 0, self.size)  # No block of it is found while something is measured.
        self.device = run("losetup", "-f", "--show", "--direct-io=on", self.image)
        with open(f"/sys/block/{os.path.basename(self.device)}/dev") as number:
            self.number = number.read().strip()
        run("mkfs.ext4", "-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0,nodiscard", self.device)
        run("mount", "-o", "noatime", self.device, self.path)

    def cap(self, values):
        """Sets the four caps; 0 lifts one."""
        for cap, value in zip(CAPS, values):
            with open(f"{CONTROL}{cap}_device", "w") as control:
                control.write(f"{self.number} {value}\n")

    def remove(self):
        if self.number:
            self.cap((0, 0, 0, 0))
        if os.path.ismount(self.path):
            for _ in range(10):
                if subprocess.run(["umount", self.path], capture_output=True).returncode == 0:
                    break
                time.sleep(0.5)
            else:
                subprocess.run(["umount", "-l", self.path], check=False)
        if self.device:
            subprocess.run(["losetup", "-d", self.device], check=False)
        self.device = self.number = None
        if os.path.exists(self.image):
            os.unlink(self.image)


class Volumes:
    """That of the database and that of the media."""

    def __init__(self, folder, database_bytes, media_bytes):
        self.database, self.media = Volume("database", folder, database_bytes), Volume("media", folder, media_bytes)

    def __enter__(self):
        try:
            self.database.make()
            self.media.make()
        except BaseException:
            self.__exit__()
            raise
        return self

    def become(self, profile):
        """The caps of that profile from now on; `None`: as fast as they are."""
        for side in ("database", "media"):
            getattr(self, side).cap(PROFILES[profile][side] if profile else (0, 0, 0, 0))

    def __exit__(self, *_):
        self.database.remove()
        self.media.remove()


class Directory:
    """A directory in place of a volume."""

    def __init__(self, name, folder):
        self.path = os.path.join(folder, name)
        os.makedirs(self.path, exist_ok=True)


class LocalDisk:
    """Database and media in two directories of one disk, as fast as that is."""

    def __init__(self, folder):
        self.database, self.media = Directory("database", folder), Directory("media", folder)

    def __enter__(self):
        return self

    def become(self, profile):
        """It has no caps."""

    def __exit__(self, *_):
        """The work directory goes as a whole."""


def missing():
    """What this machine lacks for such volumes; nothing where it has all."""
    if os.geteuid() != 0:
        return "loop devices and the block controller are for root"
    if not os.path.exists(f"{CONTROL}write_bps_device"):
        return f"{CONTROL}*: there is no block controller of cgroup v1"
    return None
