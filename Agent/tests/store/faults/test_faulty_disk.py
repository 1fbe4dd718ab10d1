"""Tests of the faulty disk, which these tests rely on, and that the store reaches the disk by one class only."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from Agent.tests.support.faulty_files import Fault, FaultyDisk, Mode


class TestFaultyDisk:
    """The double itself: what it promises, and that a real folder gives the same answers."""

    def test_answers_as_a_real_folder_does(self, tmp_path: Path) -> None:
        def work(system: Any, folder: str) -> list[Any]:
            reported: list[Any] = []

            def tell(call: Callable[..., Any], *arguments: Any) -> Any:
                try:
                    result = call(*arguments)
                except OSError as error:
                    reported.append((call.__name__, error.errno))
                    return None
                reported.append((call.__name__, result if call.__name__ not in ("open", "stat", "fstat") else None))
                return result

            one, two = f"{folder}/one", f"{folder}/two"
            tell(system.open, one, os.O_RDWR)
            fd = tell(system.open, one, os.O_RDWR | os.O_CREAT, 0o600)
            tell(system.pwrite, fd, b"hello", 3)
            tell(system.pread, fd, 100, 0)
            tell(system.pread, fd, 2, 4)
            tell(system.pread, fd, 2, 400)
            tell(system.ftruncate, fd, 5)
            tell(system.lseek, fd, 0, os.SEEK_END)
            tell(system.ftruncate, fd, 7)
            tell(system.pread, fd, 100, 0)
            tell(system.open, one, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
            reported.append((system.fstat(fd).st_size, system.stat(one).st_ino == system.fstat(fd).st_ino))
            other = tell(system.open, two, os.O_RDWR | os.O_CREAT, 0o600)
            tell(system.replace, one, two)
            reported.append((system.stat(two).st_ino == system.fstat(fd).st_ino, system.fstat(other).st_size))
            tell(system.stat, one)
            tell(system.mkdir, f"{folder}/sub")
            tell(system.mkdir, f"{folder}/sub")
            tell(system.mkdir, f"{folder}/missing/sub")
            reported.append(sorted(system.listdir(folder)))
            tell(system.open, f"{folder}/sub", os.O_RDWR)
            tell(system.remove, two)
            tell(system.remove, two)
            tell(system.pread, fd, 100, 0)
            tell(system.open, f"{two}/below", os.O_RDWR | os.O_CREAT)
            for opened in (fd, other, fd):
                tell(system.close, opened)
            return reported

        assert work(FaultyDisk(), "/disk") == work(os, str(tmp_path))

    def test_forgets_what_was_not_synced(self) -> None:
        disk = FaultyDisk()
        fd = disk.open("/disk/file", os.O_RDWR | os.O_CREAT)
        folder = disk.open("/disk", os.O_RDONLY)
        disk.fsync(folder)
        disk.pwrite(fd, b"a" * 2000, 0)
        moment = disk.now()

        assert moment.cut_power(Mode("none")).read_all() == {"file": b""}
        assert moment.cut_power(Mode("all")).read_all() == {"file": b"a" * 2000}
        assert moment.cut_power(Mode("cut", 700)).read_all() == {"file": b"a" * 700}
        torn = {moment.cut_power(Mode("torn", seed)).read_all()["file"] for seed in range(200)}
        assert {content[start : start + 512] for content in torn for start in (0, 512, 1024)} <= {
            *(b"a" * 512, b"\0" * 512, b"")
        }
        assert {len(content) for content in torn} == {0, 512, 1024, 1536, 2000}
        disk.fdatasync(fd)
        assert disk.now().cut_power(Mode("none")).read_all() == {"file": b"a" * 2000}

    @pytest.mark.parametrize(
        ("sync", "seen", "lasting"),
        [("keeps", b"ab", b"ab"), ("forgets", b"ab", b"a"), ("reverts", b"a", b"a"), ("tears", b"ab", b"a")],
    )
    def test_fails_a_sync_in_every_way(self, sync: str, seen: bytes, lasting: bytes) -> None:
        disk = FaultyDisk()
        disk.put({"file": b"a"})
        fd = disk.open("/disk/file", os.O_RDWR)
        disk.pwrite(fd, b"b", 1)
        disk.fault = Fault(disk.call_count, sync=sync)
        with pytest.raises(OSError, match="Input/output"):
            disk.fdatasync(fd)
        disk.fdatasync(fd)

        assert disk.read_all() == {"file": seen}
        left = disk.now().cut_power(Mode("none")).read_all()["file"]
        assert left == lasting or sync == "tears"
