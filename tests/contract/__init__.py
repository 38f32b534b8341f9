"""The same tests for a stand-in and for what it stands in for, so that the stand-in cannot drift."""
