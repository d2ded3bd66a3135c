"""`resequencer start` that is not ready in time says whether the service still runs."""

import pytest

from notification_service.commands import run
from notification_service.supervision.exit_code import ExitCode


class Supervisor:
    pid = 1

    def __init__(self, *codes):
        self._codes = list(codes)

    def poll(self):
        self.returncode = self._codes.pop(0)
        return self.returncode


@pytest.mark.parametrize(("code", "runs"), [(None, True), (1, False)])
def test_a_service_that_still_runs_is_named_with_how_to_stop_it(loaded, monkeypatch, capsys, tmp_path, code, runs):
    configuration = loaded(f'payment-status-notification.run-directory = "{tmp_path}"')
    monkeypatch.setattr(run, "_looks", lambda seconds: [None])
    assert run._wait_until_ready(Supervisor(None, code), configuration) is ExitCode.FAILED
    error = capsys.readouterr().err
    assert "not ready within 60 s" in error
    assert (f"the service still runs; stop it with `make stop CONF={configuration.file}`" in error) is runs
