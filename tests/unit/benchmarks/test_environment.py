"""A result says what the machine is like, and not whose it is."""

import json
import platform
from pathlib import Path

from benchmarks.environment import describe_environment, file_system_of

MOUNTS = """\
/dev/one / ext4 rw 0 0
tmpfs /memory tmpfs rw 0 0
/dev/two /with\\040space xfs rw 0 0
/dev/three /data btrfs rw 0 0
/dev/four /data zfs rw 0 0
"""


def test_the_deepest_mount_says_the_file_system() -> None:
    assert file_system_of(Path("/memory/below/it"), mounts=MOUNTS) == "tmpfs"
    assert file_system_of(Path("/memory-like"), mounts=MOUNTS) == "ext4"
    assert file_system_of(Path("/with space/x"), mounts=MOUNTS) == "xfs"


def test_a_later_mount_hides_an_earlier_one() -> None:
    assert file_system_of(Path("/data/x"), mounts=MOUNTS) == "zfs"


def test_the_environment_names_neither_host_nor_path(tmp_path: Path) -> None:
    described = describe_environment(tmp_path)

    text = json.dumps(described)
    secrets = {platform.node(), str(Path.home()), str(Path.cwd()), str(tmp_path)} - {"", "/"}
    assert [secret for secret in secrets if secret in text] == []
    assert described["libraries"]["pyarrow"]
    assert described["cores"] >= 1
