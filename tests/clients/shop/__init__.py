"""An application of Django, for its client test."""
