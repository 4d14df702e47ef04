"""Files as text, whatever they are packed in."""

import io
from pathlib import Path
from typing import TextIO

PACKED = (".gz", ".zst", ".bz2")
_PARQUET = (".parquet", ".pq")


def is_parquet(path: Path) -> bool:
    """Whether the file is one of columns rather than text, by its name."""
    return path.suffix.lower() in _PARQUET


def open_text(path: Path) -> TextIO:
    """A text file, unpacked as it is read when its name ends in one of ``PACKED``; line ends as they are.

    Raises OSError. Reading raises UnicodeDecodeError for what is not UTF-8.
    """
    if path.suffix.lower() not in PACKED:
        return path.open(newline="", encoding="utf-8-sig")
    import pyarrow as pa

    if not path.is_file():
        path.open().close()
    return io.TextIOWrapper(pa.input_stream(str(path)), newline="", encoding="utf-8-sig")


def first_line(path: Path) -> str:
    """The first line of a text, or the names of a Parquet file's columns, separated by commas."""
    if is_parquet(path):
        import pyarrow.parquet as pq

        with path.open("rb") as file:
            return ",".join(pq.ParquetFile(file).schema_arrow.names)
    with open_text(path) as file:
        return file.readline().strip()
