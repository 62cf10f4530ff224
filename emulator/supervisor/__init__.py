"""The one loop that sees a run through, and what it is made of."""
