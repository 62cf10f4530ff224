"""What people look at: terminal, report.html, report.md, junit.xml."""

__all__ = ["HTML"]

HTML = "report.html"
"""In the run folder; here because naming it costs nothing."""
