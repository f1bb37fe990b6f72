"""Conversations as people read them: shared by the pages, the exports and the terminal."""
