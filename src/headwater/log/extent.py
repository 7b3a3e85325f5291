"""What a read hands out: a stretch of one segment file.

This file alone decides what a reader holds. It keeps the file open by holding it, so that
retention may remove the segment meanwhile, and it never moves the file's position.
"""

from headwater.base.disk import File


class FileRange:
    """Whole batches, contiguous in one file."""

    __slots__ = ("file", "length", "next_offset", "position")

    def __init__(self, file: File, position: int, length: int, next_offset: int) -> None:
        """Name the bytes, and an offset that lies behind all their records.

        The file must be a handle that is never appended to.
        """
        self.file = file
        self.position = position
        self.length = length
        self.next_offset = next_offset

    def __len__(self) -> int:
        """Return the number of bytes."""
        return self.length

    def __repr__(self) -> str:
        """Show where the bytes are."""
        return f"FileRange({self.file.path!r}, {self.position}, {self.length})"

    def read(self) -> bytes:
        """Copy the bytes into memory."""
        return self.file.read(self.length, self.position)

    def fileno(self) -> int:
        """Return the descriptor for `sendfile`, or -1 where there is none."""
        return self.file.fileno()
