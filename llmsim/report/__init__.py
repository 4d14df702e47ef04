"""What people look at: figures for notebooks, the one-file HTML report, tables in the terminal.

Everything here is made from a ``Results`` and changes nothing. This is the only package that imports plotly.
"""
