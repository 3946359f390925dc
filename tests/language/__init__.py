"""Checks of the project's language: every sentence that a user sees, and every name in the code."""
