"""The page of an audit: its sections, charts and markup as one HTML file without scripts."""
