"""`emulate ui`: a local web page for the runs of a folder, for the user who started it alone."""
