"""From results to a page: tables, plots, a plain summary; Markdown and one self-contained HTML file.

Imports the records, statistics and reference tables of the benchmark; nothing here measures.
"""

from mindnano.bench.report.page import write

__all__ = ["write"]
