"""Measuring what a deployed model gives and costs: plain records, no files."""
