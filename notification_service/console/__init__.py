"""The operator's view by HTTP: pages, API and metrics, served by a process beside the workers."""
