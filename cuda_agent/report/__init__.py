"""Reports: what a campaign did, from the store alone; tables, curves, transcripts. Reads, and never writes a row."""
