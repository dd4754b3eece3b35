"""Graphs and their nodes: what a node is, what is known of it, and rewriting one graph into another."""
