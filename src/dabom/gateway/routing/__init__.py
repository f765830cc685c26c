"""Which targets a request may go to, and in which order: pure decisions."""
