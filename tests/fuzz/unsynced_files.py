"""The operating system's files without syncs: a fuzzer writes thousands of files per second, and no power cut is tested."""

from notification_service.connectors.files.operations import SystemFiles


class UnsyncedFiles(SystemFiles):
    def fsync(self, descriptor: int) -> None:
        """Do nothing."""
