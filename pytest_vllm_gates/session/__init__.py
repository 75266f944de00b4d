"""One pytest run: resolve, boot, items, results, finish."""
