"""Hashes and slots, bit for bit as the brokers and their clients compute them: scalar and over whole Arrow columns."""
