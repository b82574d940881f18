"""JSON on disk: atomic files, and line files that survive a kill at any byte.

A line file grows by whole lines in one write each. A process that dies in the middle leaves a torn
last line: readers skip and count it, and the next writer mends the file before it appends.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from stepladder.core.errors import StoreError

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows of a line file."""

    rows: tuple[Row, ...]
    num_torn: int
    """Lines that are not a JSON object, skipped."""


def encode(value: Any) -> str:
    """Return one line of JSON; NaN and infinities are refused."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def decode_rows(data: bytes) -> Rows:
    """Return every whole row of a line file's bytes."""
    rows: list[Row] = []
    num_torn = 0
    for line in data.split(b"\n"):
        if not line.strip():
            continue
        try:
            value = json.loads(line)
        except ValueError:  # also bytes that are not UTF-8
            value = None
        if isinstance(value, dict):
            rows.append(cast("Row", value))
        else:
            num_torn += 1
    return Rows(tuple(rows), num_torn)


def read_rows(path: Path) -> Rows:
    """Return every whole row; a file that does not exist has none.

    Raises
        StoreError: the file cannot be read.
    """
    try:
        return decode_rows(path.read_bytes())
    except FileNotFoundError:
        return Rows((), 0)
    except OSError as error:
        raise _unreadable(path, error) from error


def append_row(path: Path, row: Mapping[str, Any]) -> None:
    """Append one row in one write; it is with the operating system when the call returns.

    Raises
        StoreError: the row could not be written in full.
    """
    line = (encode(row) + "\n").encode()
    try:
        handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            written = os.write(handle, line)
        finally:
            os.close(handle)
    except OSError as error:
        raise _unwritable(path, error) from error
    if written < len(line):
        raise _unwritable(path, f"only {written} of {len(line)} bytes fitted")


def mend_tail(path: Path) -> int:
    """Cut off a torn last line, or end a whole one that lacks its newline; return lines cut."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return 0
    except OSError as error:
        raise _unreadable(path, error) from error
    if not data or data.endswith(b"\n"):
        return 0
    head, _, tail = data.rpartition(b"\n")
    whole = decode_rows(tail).rows
    kept = data + b"\n" if whole else (head + b"\n" if head else b"")
    write_bytes(path, kept)
    return 0 if whole else 1


def write_rows(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Replace a line file in one step."""
    write_bytes(path, "".join(encode(row) + "\n" for row in rows).encode())


def write_bytes(path: Path, data: bytes) -> None:
    """Replace a file in one step: a reader, and a crash, sees the old content or the new.

    Raises
        StoreError: the folder cannot be written or the disk is full; the old file is untouched.
    """
    scratch = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with scratch.open("wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        scratch.replace(path)
        _sync_folder(path.parent)
    except OSError as error:
        scratch.unlink(missing_ok=True)
        raise _unwritable(path, error) from error


def write_json(path: Path, value: Any) -> None:
    """Replace a JSON file in one step, indented for people."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, indent=2)
    write_bytes(path, (text + "\n").encode())


def read_json(path: Path) -> Row:
    """Return the object in a JSON file.

    Raises
        StoreError: no such file, unreadable, or not a JSON object.
    """
    try:
        value = json.loads(path.read_bytes())
    except OSError as error:
        raise _unreadable(path, error) from error
    except ValueError as error:
        raise StoreError("SL0402", f"is not valid JSON: {error}", str(path)) from error
    if not isinstance(value, dict):
        raise StoreError("SL0402", "does not hold a JSON object", str(path))
    return cast("Row", value)


def _sync_folder(folder: Path) -> None:
    """Make a rename durable; some file systems do not allow it, and then nothing is lost by it."""
    try:
        handle = os.open(folder, os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(handle)
    except OSError:
        pass
    finally:
        os.close(handle)


def _unreadable(path: Path, error: OSError) -> StoreError:
    return StoreError("SL0401", f"cannot be read: {error.strerror or error}", str(path))


def _unwritable(path: Path, error: OSError | str) -> StoreError:
    what = error if isinstance(error, str) else (error.strerror or str(error))
    return StoreError(
        "SL0403", f"cannot be written: {what}", str(path), "check the folder's rights and free disk"
    )
