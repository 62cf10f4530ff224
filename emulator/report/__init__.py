"""Reports of a run: terminal, report.html, report.md, junit.xml."""
