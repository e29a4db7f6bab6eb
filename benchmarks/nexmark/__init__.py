"""The Nexmark work: its events, its queries, and what their results must be."""
