"""Folders where pipelines keep files: a path of this machine, or a URI that Arrow reaches (s3://, gs://,
hdfs://).

A file appears whole or not at all: it is written elsewhere first. On a local disk it is synced before it gets
its name. An object store shows a file when the upload is complete. Other systems, such as HDFS, get it under
a temporary name. Arrow renames a file there by deleting the target first, so a complete file with a temporary
name is read in place of a missing target. Listings lack it until `settle` or `remove_unfinished` has renamed
it.
"""

from __future__ import annotations

import os
import posixpath
import re
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from supercluster.spark.pipelines.parameters import ParameterError

if TYPE_CHECKING:
    from pyarrow import NativeFile
    from pyarrow.fs import FileSystem

COPY_BYTES = 4 * 1024 * 1024
TEMPORARY = ".writing-"
READY = ".ready-"
OBJECT_STORES = ("s3", "gcs", "abfs")
# A colon in front of an @, since a secret may have a slash, but not where a port and a path may look so; a word behind a colon that is no port; or an option of Arrow.
_SECRET = re.compile(
    r"^(?!(?:hdfs|viewfs|file):)[^:/]*://[^/?#]*:[^?#]*@|://[^/?#]*?:(?!\d*(?:[/?#,]|$))|[?&](?:client_secret|secret_key|account_key|sas_token)=",
    re.ASCII,
)
_IPV6 = re.compile(r"\[[0-9A-Fa-f:.]*\]")


class Location:
    """A folder, and files in it by their paths below it. Folders are made as they are needed.

    Raises from every method:
        OSError: the file system refused.
    """

    def __init__(self, where: str) -> None:
        """Raises ParameterError when no file system has such a location, or it has a secret: parameters stand in manifests and logs."""
        if "://" in where and _SECRET.search(_IPV6.sub("", where)):
            raise ParameterError(
                "location has a password or a secret key in it; leave it out, and give it in the pods' environment, as "
                "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
            )
        self.where = where
        self._local = None if "://" in where else Path(where).absolute()
        if where.startswith("file://"):
            self._local = Path(where.removeprefix("file://"))

    def __reduce__(self) -> tuple[type[Location], tuple[str]]:
        return Location, (self.where,)

    def _remote(self) -> tuple[FileSystem, str]:
        import pyarrow as pa
        from pyarrow import fs

        try:
            # Spark's name for what Arrow reaches itself.
            found, path = fs.FileSystem.from_uri(self.where.replace("s3a://", "s3://", 1))
        except (pa.ArrowException, ValueError) as error:
            reason = str(error).splitlines()[0]
            raise ParameterError(
                f"location {self.where!r} cannot be used: {reason}; give a path, or a URI of s3, gs or hdfs"
            ) from None
        return found, path

    def below(self, name: str) -> Location:
        if self._local is not None:
            return Location(posixpath.join(self.where, name))
        # Options of Arrow stand behind the path.
        path, mark, options = self.where.partition("?")
        return Location(posixpath.join(path, name) + mark + options)

    def read(self, name: str) -> bytes | None:
        """The file's content; None when there is none."""
        try:
            if self._local is not None:
                return (self._local / name).read_bytes()
            with self._open(name) as stream:
                return bytes(stream.read())
        except FileNotFoundError:
            return None

    def write(self, name: str, data: bytes) -> None:
        with self.new_file(name) as temporary:
            temporary.write_bytes(data)

    @contextmanager
    def new_file(self, name: str) -> Iterator[Path]:
        """A local path to write; at the end it becomes the file `name`, in place of one that is there. An exception leaves nothing, and
        so does a path that was unlinked."""
        target = None if self._local is None else self._local / name
        if target is not None:
            target.parent.mkdir(parents=True, exist_ok=True)
        folder = None if target is None else target.parent
        number, text = tempfile.mkstemp(prefix=TEMPORARY, dir=folder)
        os.close(number)
        temporary = Path(text)
        try:
            yield temporary
            if not temporary.exists():
                return
            if target is not None:
                _sync(temporary)
                temporary.replace(target)
                _sync(target.parent)
            else:
                self._upload(temporary, name)
        finally:
            temporary.unlink(missing_ok=True)

    def remove_unfinished(self, folder: str) -> None:
        """Delete what writers that were killed have left below a folder, and name the files that wait for it. A writer that still runs
        there fails."""
        if self._local is not None:
            for each in (self._local / folder).rglob(f"{TEMPORARY}*"):
                each.unlink(missing_ok=True)
            return
        system, path = self._remote()
        if system.type_name in OBJECT_STORES:
            return
        for there in _files(system, posixpath.join(path, folder)):
            parent, name = posixpath.split(there)
            if name.startswith(READY):
                _settle(system, posixpath.join(parent, name.removeprefix(READY)))
            elif name.startswith(TEMPORARY):
                system.delete_file(there)

    def settle(self, name: str) -> None:
        """Give a file its name that is read in its place until then."""
        if self._local is None:
            system, path = self._remote()
            if system.type_name not in OBJECT_STORES:
                _settle(system, posixpath.join(path, name))

    def _upload(self, source: Path, name: str) -> None:
        system, path = self._remote()
        target = posixpath.join(path, name)
        folder = posixpath.dirname(target)
        system.create_dir(folder, recursive=True)
        if system.type_name in OBJECT_STORES:
            _send(source, system, target)
            return
        written = posixpath.join(folder, f"{TEMPORARY}{secrets.token_hex(8)}")
        try:
            _send(source, system, written)
            if not system.get_file_info(target).is_file:
                system.move(written, target)
                return
            system.move(written, _ready(target))
            system.move(_ready(target), target)
        except BaseException:
            with suppress(OSError):
                system.delete_file(written)
            raise

    def _open(self, name: str) -> NativeFile:
        """
        Raises:
            FileNotFoundError: there is none.
        """
        system, path = self._remote()
        target = posixpath.join(path, name)
        try:
            return system.open_input_stream(target)
        except FileNotFoundError:
            if system.type_name in OBJECT_STORES:
                raise
        try:
            return system.open_input_stream(_ready(target))
        except FileNotFoundError:
            # It may have got its name in between.
            return system.open_input_stream(target)

    @contextmanager
    def local_file(self, name: str) -> Iterator[Path]:
        """The file on this machine, for as long as the context lasts.

        Raises:
            FileNotFoundError: there is none.
        """
        if self._local is not None:
            yield self._local / name
            return
        with tempfile.NamedTemporaryFile() as file:
            with self._open(name) as stream:
                shutil.copyfileobj(stream, file, COPY_BYTES)
            file.flush()
            yield Path(file.name)

    def files(self, folder: str = "") -> list[str]:
        """All files below a folder, by their paths from this location, in order. Names that begin with a dot or an underscore, and what
        is in such folders, are left out, as Spark does it."""
        if self._local is not None:
            there = (self._local / folder).rglob("*")
            names = [each.relative_to(self._local).as_posix() for each in there if each.is_file()]
        else:
            system, path = self._remote()
            names = [posixpath.relpath(each, path) for each in _files(system, posixpath.join(path, folder))]
        return sorted(name for name in names if not any(part[0] in "._" for part in name.split("/")))


def _ready(target: str) -> str:
    folder, name = posixpath.split(target)
    return posixpath.join(folder, READY + name)


def _settle(system: FileSystem, target: str) -> None:
    """A file that has the name already is as good as the one that waits."""
    if not system.get_file_info(_ready(target)).is_file:
        return
    if system.get_file_info(target).is_file:
        system.delete_file(_ready(target))
    else:
        system.move(_ready(target), target)


def _files(system: FileSystem, folder: str) -> list[str]:
    """The paths of all files below a folder."""
    from pyarrow.fs import FileSelector

    selector = FileSelector(folder, recursive=True, allow_not_found=True)
    return [each.path for each in system.get_file_info(selector) if each.is_file]


def _send(source: Path, system: FileSystem, target: str) -> None:
    with source.open("rb") as file, system.open_output_stream(target) as stream:
        shutil.copyfileobj(file, stream, COPY_BYTES)


def _sync(path: Path) -> None:
    number = os.open(path, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)
