"""The report as one HTML file: made from the verdict's document, needing nothing else."""
