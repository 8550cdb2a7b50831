"""The documentation site: its configuration, and the checks that its pages pass before they are built."""
