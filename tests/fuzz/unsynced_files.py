"""The operating system's files without waiting for the disk: a fuzzer writes thousands a second, and no power cut is meant."""

from connectors.files.operations import SystemFiles


class UnsyncedFiles(SystemFiles):
    def fsync(self, descriptor: int) -> None:
        """Nothing."""
