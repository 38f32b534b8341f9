"""`python -m dsv4ctl` is `dsv4ctl`."""

from dsv4ctl.cli import main

main()
