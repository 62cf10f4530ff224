"""Writes the measured numbers and the pictures of docs/gallery from runs of its scenarios.

    make gallery                                # runs all its scenarios, into runs/gallery
    python -m benchmarks.gallery runs/gallery   # writes what they measured into docs/gallery

`runs.py` reads the runs, `pages.py` fills the pages, `pictures.py` takes the pictures. A page whose
tables or charts take computing has a module of its own here, with the page's name and `_` for `-`:
`blocks(runs)` returns Markdown by block name, `charts(runs)` figures of plotly by picture name.
"""
