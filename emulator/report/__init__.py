"""Reports of a run: terminal, report.html, report.md, junit.xml."""

__all__ = ["HTML"]

HTML = "report.html"
"""The page in the run folder; here because other modules of the package are slow to import."""
